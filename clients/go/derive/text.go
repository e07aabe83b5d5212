package derive

import (
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// ValidText replaces each byte that is not UTF-8, as JSON does. An API server stores such texts if they come as protobuf, and hands them out as
// protobuf; a message with one could not be sent.
func ValidText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

// WithValidTexts is the pod with its texts as JSON has them. Only the annotations and the names of images may be others: the API server checks
// the rest.
func WithValidTexts(pod *corev1.Pod) *corev1.Pod {
	if hasValidTexts(pod) {
		return pod
	}
	pod = pod.DeepCopy()
	for key, text := range pod.Annotations {
		pod.Annotations[key] = ValidText(text)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for at := range containers {
			containers[at].Image = ValidText(containers[at].Image)
		}
	}
	for at := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[at].Image; image != nil {
			image.Reference = ValidText(image.Reference)
		}
	}
	return pod
}

func hasValidTexts(pod *corev1.Pod) bool {
	for _, text := range pod.Annotations {
		if !utf8.ValidString(text) {
			return false
		}
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for at := range containers {
			if !utf8.ValidString(containers[at].Image) {
				return false
			}
		}
	}
	for at := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[at].Image; image != nil && !utf8.ValidString(image.Reference) {
			return false
		}
	}
	return true
}
