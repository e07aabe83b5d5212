package cycle

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	pumice "github.com/pumice-scheduler/pumice/clients/go"
)

// Options are the settings of an adapter, as operators write them.
type Options struct {
	// Target of the service, as pumice.Dial takes it: one address, or several with commas between. Default pumice.DefaultTarget.
	Target string
	// Client has the options of the connection.
	Client pumice.Options
	// Settings of the Scheduler, without client and observer.
	Settings Settings
	// Shadow is true if the adapter compares results and does not use them.
	Shadow bool
}

// argumentPrefix begins the names of options among the arguments of a plugin.
const argumentPrefix = "pumice."

// IsOption reports whether an argument of a plugin is an option of the adapter, which is no part of a policy.
func IsOption(argument string) bool {
	return strings.HasPrefix(argument, argumentPrefix)
}

// ReadOptions reads options from the environment (PUMICE_POLICY_MODE), and from arguments of plugins (pumice.policyMode),
// which come first. Arguments without the prefix "pumice." are ignored. The error names every option that cannot be read.
func ReadOptions(environment func(name string) string, arguments map[string]any) (Options, error) {
	options := Options{Target: pumice.DefaultTarget}
	// A cycle without the service costs little, and the first one after its return should have it.
	options.Client.BreakFor = time.Second
	var files tlsFiles
	table := options.table(&files)
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(table)) {
		text, from := environment(environmentName(name)), environmentName(name)
		if argument, found := arguments[argumentPrefix+name]; found {
			text, from = fmt.Sprint(argument), argumentPrefix+name
		}
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := table[name](text); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %q %w", from, text, err))
		}
	}
	for _, argument := range slices.Sorted(maps.Keys(arguments)) {
		name, own := strings.CutPrefix(argument, argumentPrefix)
		if own && table[name] == nil {
			wrong = append(wrong, fmt.Errorf("%s: is no option; the options are %s", argument, strings.Join(OptionNames(), ", ")))
		}
	}
	var err error
	if options.Client.TLS, err = files.config(); err != nil {
		wrong = append(wrong, err)
	}
	return options, errors.Join(wrong...)
}

// OptionNames returns the names of all options, sorted.
func OptionNames() []string {
	var options Options
	return slices.Sorted(maps.Keys(options.table(&tlsFiles{})))
}

// environmentName is PUMICE_POLICY_MODE for policyMode.
func environmentName(name string) string {
	var made strings.Builder
	made.WriteString("PUMICE_")
	for _, letter := range name {
		if unicode.IsUpper(letter) {
			made.WriteByte('_')
		}
		made.WriteRune(unicode.ToUpper(letter))
	}
	return made.String()
}

// table has a function for each option that reads its text.
func (options *Options) table(files *tlsFiles) map[string]func(string) error {
	client, settings := &options.Client, &options.Settings
	return map[string]func(string) error{
		"target":        anyText(&options.Target),
		"tlsCaFile":     anyText(&files.ca),
		"tlsCertFile":   anyText(&files.cert),
		"tlsKeyFile":    anyText(&files.key),
		"tlsServerName": anyText(&files.serverName),
		"tokenFile":     anyText(&client.TokenFile),
		"source":        anyText(&settings.Source),
		"policy":        anyText(&settings.Policy),
		"policyHash":    anyText(&settings.PolicyHash),
		"policyMode": oneOf(&settings.PolicyMode, map[string]PolicyMode{
			"follow": FollowPolicy, "hand": PushPolicy, "check": CheckPolicy,
		}),
		"compatibility": oneOf(&settings.Compatibility, map[string]string{
			"corrected": "corrected", "upstream": "upstream", "volcano-1.14.4": "volcano-1.14.4",
			"volcano-1.15.1": "volcano-1.15.1", "volcano-ed72c7c81": "volcano-ed72c7c81",
		}),
		"fallback":       oneOf(&settings.Fallback, map[string]Fallback{"fail-closed": FailClosed, "abstain": Abstain}),
		"shadow":         oneOf(&options.Shadow, map[string]bool{"true": true, "false": false}),
		"plans":          oneOf(&settings.Plans, map[string]bool{"true": true, "false": false}),
		"timeout":        duration(&client.Timeout, ""),
		"attempts":       number(&client.Attempts, ""),
		"breakAfter":     number(&client.BreakAfter, "never"),
		"breakFor":       duration(&client.BreakFor, ""),
		"returnAfter":    duration(&client.ReturnAfter, ""),
		"budgetInTime":   duration(&settings.Budget.InTime, ""),
		"budgetTime":     duration(&settings.Budget.Time, "unlimited"),
		"budgetOpen":     duration(&settings.Budget.Open, "unlimited"),
		"budgetCalls":    number(&settings.Budget.Calls, "unlimited"),
		"keepFor":        duration(&settings.KeepFor, "never"),
		"verifyEvery":    number(&settings.VerifyEvery, "never"),
		"eventsEvery":    duration(&settings.EventsEvery, "never"),
		"eventsPerCycle": number(&settings.EventsPerCycle, ""),
	}
}

func anyText(field *string) func(string) error {
	return func(text string) error {
		*field = text
		return nil
	}
}

func oneOf[T any](field *T, choices map[string]T) func(string) error {
	return func(text string) error {
		chosen, known := choices[text]
		if !known {
			return fmt.Errorf("is none of %s", strings.Join(slices.Sorted(maps.Keys(choices)), ", "))
		}
		*field = chosen
		return nil
	}
}

// number reads a whole number above 0, or a word for none, which is −1.
func number(field *int, none string) func(string) error {
	return func(text string) error {
		if none != "" && (text == none || text == "-1") {
			*field = -1
			return nil
		}
		value, err := strconv.Atoi(text)
		if err != nil || value <= 0 {
			return fmt.Errorf("is no whole number above 0%s", orWord(none))
		}
		*field = value
		return nil
	}
}

// duration reads a time with a unit, or a word for none, which is −1.
func duration(field *time.Duration, none string) func(string) error {
	return func(text string) error {
		if none != "" && (text == none || strings.HasPrefix(text, "-")) {
			*field = -1
			return nil
		}
		value, err := ParseDuration(text)
		if err != nil || value <= 0 {
			return fmt.Errorf("is no time above 0 with a unit, such as 500ms, 30s, 5m or 2h%s", orWord(none))
		}
		*field = value
		return nil
	}
}

func orWord(none string) string {
	if none == "" {
		return ""
	}
	return ", or " + none
}

// ParseDuration reads a time as people write it: 500ms, 30s, 1m30s, "5 min", 2h, 1d.
func ParseDuration(text string) (time.Duration, error) {
	compact := strings.ToLower(strings.Join(strings.Fields(text), ""))
	sum, rest := time.Duration(0), compact
	for rest != "" {
		digits := strings.IndexFunc(rest, func(letter rune) bool { return letter != '.' && !unicode.IsDigit(letter) })
		if digits <= 0 {
			return 0, fmt.Errorf("%q is no time with a unit, such as 30s", text)
		}
		letters := strings.IndexFunc(rest[digits:], unicode.IsDigit)
		if letters < 0 {
			letters = len(rest) - digits
		}
		unit, known := units[rest[digits:digits+letters]]
		amount, err := strconv.ParseFloat(rest[:digits], 64)
		if !known || err != nil || amount*float64(unit) > float64(1<<62) {
			return 0, fmt.Errorf("%q is no time with a unit, such as 30s", text)
		}
		sum += time.Duration(amount * float64(unit))
		rest = rest[digits+letters:]
	}
	if compact == "" {
		return 0, errors.New("the text is empty; give a time with a unit, such as 30s")
	}
	return sum, nil
}

var units = map[string]time.Duration{
	"us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "sec": time.Second, "m": time.Minute,
	"min": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// tlsFiles encrypt a connection.
type tlsFiles struct {
	ca, cert, key, serverName string
}

// config is nil without any file or name.
func (files *tlsFiles) config() (*tls.Config, error) {
	if *files == (tlsFiles{}) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: files.serverName}
	if files.ca != "" {
		text, err := os.ReadFile(files.ca)
		if err != nil {
			return nil, fmt.Errorf("tlsCaFile: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tlsCaFile: %s has no certificate", files.ca)
		}
	}
	if (files.cert == "") != (files.key == "") {
		return nil, errors.New("tlsCertFile and tlsKeyFile come together; give both or none")
	}
	if cert, key := files.cert, files.key; cert != "" {
		// Read again for each connection, so that a renewed certificate counts.
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("tlsCertFile: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}
