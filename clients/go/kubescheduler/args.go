package kubescheduler

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
	pb "github.com/pumice-scheduler/pumice/clients/go/pumicev1"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// ArgsKind is the kind that arguments may name; they may leave it out.
const ArgsKind = "PumiceArgs"

// Args are the arguments in `pluginConfig` of a KubeSchedulerConfiguration. An argument that is not known is refused.
type Args struct {
	metav1.TypeMeta `json:",inline"`

	// Address of the service: HOST:PORT, https://…, unix:PATH or the path of a socket; or those of several replicas, with commas
	// between, in the order of preference. Default 127.0.0.1:7461.
	Address string `json:"address,omitempty"`
	// TLS encrypts the connection.
	TLS *TLSArgs `json:"tls,omitempty"`
	// TokenFile has a bearer token for the service, over TLS or to this machine only; it is read again every ten seconds.
	TokenFile string `json:"tokenFile,omitempty"`
	// Policy that is asked. Default "default".
	Policy string `json:"policy,omitempty"`
	// PolicyProfile is the profile, where the policy is a KubeSchedulerConfiguration with several. Default: the only one.
	PolicyProfile string `json:"policyProfile,omitempty"`
	// Source is the name under which this scheduler writes nodes and pods. Profiles of one scheduler share it; another
	// scheduler takes another. Default "kube-scheduler".
	Source string `json:"source,omitempty"`
	// Budget is the time of one scheduling cycle for all its calls together; beyond it the service counts as unavailable. Default 1s.
	Budget metav1.Duration `json:"budget,omitempty"`
	// Fallback chooses, per call, the result while the service is unavailable.
	Fallback FallbackArgs `json:"fallback,omitempty"`
	// Admit sends an Admit request for pods that name a pod group. Default true.
	Admit *bool `json:"admit,omitempty"`
	// Gangs places the pods of a pod group that needs more than one of them together or not at all. Default true.
	Gangs *bool `json:"gangs,omitempty"`
	// GangTimeout is the time for which the pods of a gang wait for each other before they are bound. Default 30s.
	GangTimeout metav1.Duration `json:"gangTimeout,omitempty"`
	// CheckBindings asks the API server, without effect, for the binding of each pod of a gang before the first one is bound.
	// Default true.
	CheckBindings *bool `json:"checkBindings,omitempty"`
	// ResourceFit says whether Pumice judges a node's room, too: None, Idle or FutureIdle. Default None: kube-scheduler's
	// own NodeResourcesFit does.
	ResourceFit string `json:"resourceFit,omitempty"`
	// Scores says how scores become 0..100: Auto, Scaled or Untouched. Default Auto.
	Scores string `json:"scores,omitempty"`
}

// TLSArgs encrypt the connection.
type TLSArgs struct {
	// CAFile has the authorities that may have signed the service's certificate. Default: those of the system.
	CAFile string `json:"caFile,omitempty"`
	// CertFile and KeyFile are this client's own; they are read again for every connection.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// ServerName is the name in the service's certificate. Default: that of the address.
	ServerName string `json:"serverName,omitempty"`
}

// FallbackArgs choose a fallback per call, with the names of the Go client.
type FallbackArgs struct {
	// Filter: FailClosed (default), FailOpen, Abstain or ReturnError.
	Filter string `json:"filter,omitempty"`
	// Score: Abstain (default) or ReturnError.
	Score string `json:"score,omitempty"`
	// Admit: FailClosed (default), FailOpen, Abstain or ReturnError.
	Admit string `json:"admit,omitempty"`
}

// Ways of making scores 0..100.
const (
	ScoresAuto      = "Auto"
	ScoresScaled    = "Scaled"
	ScoresUntouched = "Untouched"
)

// ParseArgs reads arguments as the framework hands them over, and puts the defaults in.
func ParseArgs(object runtime.Object) (Args, error) {
	args := Args{}
	switch object := object.(type) {
	case nil:
	case *runtime.Unknown:
		text, err := yaml.YAMLToJSON(object.Raw)
		if err != nil {
			return args, fmt.Errorf("the arguments: %w", err)
		}
		if len(object.Raw) > 0 {
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&args); err != nil {
				return args, fmt.Errorf("the arguments: %w", err)
			}
		}
	default:
		return args, fmt.Errorf("the arguments are of type %T", object)
	}
	args.withDefaults()
	return args, args.check()
}

func (args *Args) withDefaults() {
	for field, standard := range map[*string]string{
		&args.Address: pumice.DefaultTarget, &args.Policy: "default", &args.Source: "kube-scheduler",
		&args.ResourceFit: "None", &args.Scores: ScoresAuto,
		&args.Fallback.Filter: pumice.FailClosed.String(), &args.Fallback.Score: pumice.Abstain.String(), &args.Fallback.Admit: pumice.FailClosed.String(),
	} {
		if *field == "" {
			*field = standard
		}
	}
	if args.Budget.Duration == 0 {
		args.Budget.Duration = time.Second
	}
	if args.GangTimeout.Duration == 0 {
		args.GangTimeout.Duration = 30 * time.Second
	}
	for _, choice := range []**bool{&args.Admit, &args.Gangs, &args.CheckBindings} {
		if *choice == nil {
			*choice = new(true)
		}
	}
}

func (args *Args) check() error {
	var wrong []error
	if args.Kind != "" && args.Kind != ArgsKind {
		wrong = append(wrong, fmt.Errorf("kind: %q is not %s", args.Kind, ArgsKind))
	}
	if args.Budget.Duration < 0 {
		wrong = append(wrong, errors.New("budget: is below 0"))
	}
	if args.GangTimeout.Duration < 0 || args.GangTimeout.Duration > 10*time.Minute {
		wrong = append(wrong, errors.New("gangTimeout: is not between 0 and 10m"))
	}
	if _, found := fits[args.ResourceFit]; !found {
		wrong = append(wrong, fmt.Errorf("resourceFit: %q is none of None, Idle, FutureIdle", args.ResourceFit))
	}
	if args.Scores != ScoresAuto && args.Scores != ScoresScaled && args.Scores != ScoresUntouched {
		wrong = append(wrong, fmt.Errorf("scores: %q is none of Auto, Scaled, Untouched", args.Scores))
	}
	if _, err := args.Fallback.table(); err != nil {
		wrong = append(wrong, err)
	}
	if args.TLS != nil && (args.TLS.CertFile == "") != (args.TLS.KeyFile == "") {
		wrong = append(wrong, errors.New("tls: certFile and keyFile come together"))
	}
	return errors.Join(wrong...)
}

var fits = map[string]pb.ResourceFit{
	"None":       pb.ResourceFit_RESOURCE_FIT_NONE,
	"Idle":       pb.ResourceFit_RESOURCE_FIT_IDLE,
	"FutureIdle": pb.ResourceFit_RESOURCE_FIT_FUTURE_IDLE,
}

// table is the fallback of each call.
func (fallback FallbackArgs) table() (map[pumice.Call]pumice.Fallback, error) {
	closed, open := pumice.FailClosed, pumice.FailOpen
	table, wrong := map[pumice.Call]pumice.Fallback{}, []error{}
	for _, field := range []struct {
		name, word string
		call       pumice.Call
		possible   []pumice.Fallback
	}{
		{"filter", fallback.Filter, pumice.CallFilter, []pumice.Fallback{closed, open, pumice.Abstain, pumice.ReturnError}},
		{"score", fallback.Score, pumice.CallScore, []pumice.Fallback{pumice.Abstain, pumice.ReturnError}},
		{"admit", fallback.Admit, pumice.CallAdmit, []pumice.Fallback{closed, open, pumice.Abstain, pumice.ReturnError}},
	} {
		at := slices.IndexFunc(field.possible, func(choice pumice.Fallback) bool { return choice.String() == field.word })
		if at < 0 {
			wrong = append(wrong, fmt.Errorf("fallback.%s: %q is none of %v", field.name, field.word, field.possible))
			continue
		}
		table[field.call] = field.possible[at]
	}
	return table, errors.Join(wrong...)
}

// options are those of the connection.
func (args *Args) options(metrics pumice.Metrics, log klog.Logger) (pumice.Options, error) {
	// Each profile chooses its own fallbacks, so the client itself returns its errors.
	options := pumice.Options{Timeout: largestPart, Metrics: metrics, Logger: slog.New(logr.ToSlogHandler(log)), TokenFile: args.TokenFile}
	if args.TLS == nil {
		return options, nil
	}
	options.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: args.TLS.ServerName}
	if args.TLS.CAFile != "" {
		text, err := os.ReadFile(args.TLS.CAFile)
		if err != nil {
			return options, fmt.Errorf("tls.caFile: %w", err)
		}
		options.TLS.RootCAs = x509.NewCertPool()
		if !options.TLS.RootCAs.AppendCertsFromPEM(text) {
			return options, fmt.Errorf("tls.caFile: %s holds no certificate", args.TLS.CAFile)
		}
	}
	if own := *args.TLS; own.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return options, fmt.Errorf("tls.certFile: %w", err)
		}
		options.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return options, nil
}
