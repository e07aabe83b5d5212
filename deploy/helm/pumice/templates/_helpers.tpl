{{/* Name of the chart's objects. */}}
{{- define "pumice.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 55 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels by which services and policies select the pod. They cannot change after the installation. */}}
{{- define "pumice.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "pumice.labels" -}}
{{ include "pumice.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name of the service account. */}}
{{- define "pumice.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pumice.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Image by digest, or by tag. */}}
{{- define "pumice.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* Name of the ConfigMap of the policy; empty: the built-in policy. */}}
{{- define "pumice.policyConfigMap" -}}
{{- if .Values.policy.existingConfigMap -}}
{{- .Values.policy.existingConfigMap -}}
{{- else if .Values.policy.document -}}
{{- include "pumice.fullname" . }}-policy
{{- end -}}
{{- end -}}

{{/* Name of the Secret of TLS; empty: plain text. */}}
{{- define "pumice.tlsSecret" -}}
{{- if .Values.tls.secretName -}}
{{- .Values.tls.secretName -}}
{{- else if or .Values.tls.selfSigned .Values.tls.certManager.enabled -}}
{{- include "pumice.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* Names of the server in its certificate: those of its services. */}}
{{- define "pumice.dnsNames" -}}
{{- $name := include "pumice.fullname" . -}}
{{- range list $name (printf "%s-sources" $name) (printf "%s-replicas" $name) }}
- {{ . }}
- {{ . }}.{{ $.Release.Namespace }}
- {{ . }}.{{ $.Release.Namespace }}.svc
{{- end }}
{{- range .Values.tls.certManager.dnsNames }}
- {{ . }}
{{- end }}
{{- end -}}

{{/* Anything if the chart writes the file of identities. */}}
{{- define "pumice.access" -}}
{{- if and (include "pumice.tlsSecret" .) (not .Values.settings.identities_file) -}}
true
{{- end -}}
{{- end -}}

{{/* Store that several servers can share: kubernetes or etcd; empty: a volume, or memory. */}}
{{- define "pumice.sharedStore" -}}
{{- if .Values.store.kind -}}
{{- .Values.store.kind -}}
{{- else if eq (default "" .Values.settings.store) "etcd" -}}
etcd
{{- end -}}
{{- end -}}

{{/* Namespace of the objects of a store in the Kubernetes API. */}}
{{- define "pumice.storeNamespace" -}}
{{- default .Release.Namespace .Values.store.namespace -}}
{{- end -}}

{{/* Anything if the server has durable state on a volume. */}}
{{- define "pumice.volume" -}}
{{- if and .Values.persistence.enabled (not (include "pumice.sharedStore" .)) -}}
true
{{- end -}}
{{- end -}}

{{/* Anything if the server asks the API server for something. */}}
{{- define "pumice.asksTheApiServer" -}}
{{- if or .Values.cluster.watch .Values.cluster.verifyTokens (eq (include "pumice.sharedStore" .) "kubernetes") -}}
true
{{- end -}}
{{- end -}}

{{/* Settings file: the values, and the addresses and paths of the pod. */}}
{{- define "pumice.settings" -}}
{{- $own := dict "grpc_address" "0.0.0.0:7461" "http_address" "0.0.0.0:7462" -}}
{{- if include "pumice.policyConfigMap" . -}}
{{- $_ := set $own "policy_file" (printf "/etc/pumice/policy/%s" .Values.policy.key) -}}
{{- end -}}
{{- if .Values.cluster.watch -}}
{{- $_ := set $own "state" "kubernetes" -}}
{{- with .Values.cluster.namespaces -}}
{{- $_ := set $own "kubernetes_namespace" . -}}
{{- end -}}
{{- with .Values.cluster.explainPodsOf -}}
{{- $_ := set $own "explain_pods_of" . -}}
{{- end -}}
{{- if .Values.cluster.bindPods -}}
{{- $_ := set $own "extender_bind" true -}}
{{- end -}}
{{- end -}}
{{- if include "pumice.volume" . -}}
{{- $_ := set $own "data_dir" "/var/lib/pumice/data" -}}
{{- end -}}
{{- if eq (include "pumice.sharedStore" .) "kubernetes" -}}
{{- $_ := set $own "store" "kubernetes" -}}
{{- $_ := set $own "kubernetes_store_namespace" (include "pumice.storeNamespace" .) -}}
{{- $_ := set $own "kubernetes_store_name" (include "pumice.fullname" . | trunc 40 | trimSuffix "-") -}}
{{- end -}}
{{- if include "pumice.tlsSecret" . -}}
{{- $_ := set $own "tls_certificate" "/etc/pumice/tls/tls.crt" -}}
{{- $_ := set $own "tls_key" "/etc/pumice/tls/tls.key" -}}
{{- if .Values.tls.clientAuth -}}
{{- $_ := set $own "tls_client_ca" "/etc/pumice/tls/ca.crt" -}}
{{- $_ := set $own "tls_client_auth" .Values.tls.clientAuth -}}
{{- end -}}
{{- end -}}
{{- if include "pumice.access" . -}}
{{- $_ := set $own "identities_file" "/etc/pumice/settings/identities.yaml" -}}
{{- end -}}
{{- toYaml (merge $own .Values.settings) -}}
{{- end -}}

{{/* Rights to read what is in namespaces. */}}
{{- define "pumice.namespacedRules" -}}
- apiGroups: [""]
  resources: [pods, resourcequotas, services, replicationcontrollers]
  verbs: [list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [list, watch]
- apiGroups: [scheduling.volcano.sh, scheduling.k8s.io]
  resources: [podgroups]
  verbs: [list, watch]
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims, resourceclaimtemplates]
  verbs: [list, watch]
{{- end -}}

{{/* Contradictions between values, which a schema cannot see. */}}
{{- define "pumice.check" -}}
{{- if and .Values.policy.document .Values.policy.existingConfigMap -}}
{{- fail "policy.document and policy.existingConfigMap name two policies: set one of them" -}}
{{- end -}}
{{- if not (or (include "pumice.tlsSecret" .) (eq (toString .Values.settings.insecure) "true")) -}}
{{- fail "nothing says how callers connect: set tls.selfSigned=true (the chart makes an authority and a certificate), tls.certManager.enabled=true (cert-manager does), or tls.secretName (yours); or settings.insecure=true, by which whoever can connect has all roles, in plain text" -}}
{{- end -}}
{{- if gt (len (compact (list .Values.tls.secretName (ternary "selfSigned" "" .Values.tls.selfSigned) (ternary "certManager" "" .Values.tls.certManager.enabled)))) 1 -}}
{{- fail "tls.secretName, tls.selfSigned and tls.certManager.enabled name several certificates: set one of them" -}}
{{- end -}}
{{- if and .Values.tls.clientAuth (not (include "pumice.tlsSecret" .)) -}}
{{- fail "tls.clientAuth asks clients for certificates, which takes TLS: set tls.selfSigned, tls.certManager.enabled or tls.secretName" -}}
{{- end -}}
{{- if and (include "pumice.access" .) (not .Values.access) -}}
{{- fail "access is empty, so everybody who can connect would have all roles: list callers in access.identities, or name a file of yours in settings.identities_file" -}}
{{- end -}}
{{- range (default dict .Values.access).identities -}}
{{- if and .service_accounts (not $.Values.cluster.verifyTokens) -}}
{{- fail (printf "access.identities names service accounts for %s, whose tokens the server may not verify: set cluster.verifyTokens" .name) -}}
{{- end -}}
{{- end -}}
{{- if and (gt (.Values.replicas | int) 1) (not (include "pumice.sharedStore" .)) -}}
{{- fail (printf "replicas is %d, and servers without a common store would each promise the same quota: set store.kind to kubernetes, or settings.store to etcd" (.Values.replicas | int)) -}}
{{- end -}}
{{- if eq (default "" .Values.settings.store) "kubernetes" -}}
{{- fail "settings.store is kubernetes, which takes rights: set store.kind, and the chart grants them" -}}
{{- end -}}
{{- if and .Values.store.kind .Values.settings.store -}}
{{- fail "store.kind and settings.store name two stores: set one of them" -}}
{{- end -}}
{{- if and .Values.cluster.explainPodsOf (not .Values.cluster.watch) -}}
{{- fail "cluster.explainPodsOf explains pods of a cluster that the server does not watch: set cluster.watch" -}}
{{- end -}}
{{- if and .Values.cluster.bindPods (not .Values.cluster.watch) -}}
{{- fail "cluster.bindPods binds pods of a cluster that the server does not watch: set cluster.watch" -}}
{{- end -}}
{{- $delay := .Values.settings.drain_delay_ms | default 0 | int64 -}}
{{- $deadline := .Values.settings.drain_deadline_ms | default 10000 | int64 -}}
{{- $drain := add $delay $deadline -}}
{{- if le (mul (.Values.terminationGracePeriodSeconds | int64) 1000) $drain -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, not more than settings.drain_delay_ms and settings.drain_deadline_ms together (%d ms): the kubelet would kill the server while it drains" (.Values.terminationGracePeriodSeconds | int64) $drain) -}}
{{- end -}}
{{- end -}}
