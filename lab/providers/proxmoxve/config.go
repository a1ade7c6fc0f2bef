package proxmoxve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

var errNotConfigured = errors.New("the proxmoxve provider is not configured: set proxmoxve:endpoint and proxmoxve:apiToken, or PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN")

// configuration is the table of the provider's own properties.
func configuration() attributes {
	return attributes{
		"apiToken":            {secret: true},
		"endpoint":            {},
		"insecure":            {kind: boolean},
		"minTls":              {},
		"password":            {secret: true},
		"username":            {},
		"authTicket":          {secret: true, unsupported: true},
		"csrfPreventionToken": {secret: true, unsupported: true},
		"otp":                 {unsupported: true},
		"randomVmIdEnd":       {kind: integer, unsupported: true},
		"randomVmIdStart":     {kind: integer, unsupported: true},
		"randomVmIds":         {kind: boolean, unsupported: true},
		"ssh":                 {kind: block, unsupported: true, fields: attributes{}}, "tmpDir": {unsupported: true},
	}
}

// environment has the published environment variables. The older names (PM_VE_…) do not do: half of the published
// provider does not read them.
var environment = map[string]string{ //nolint:gosec // names of variables
	"endpoint": "PROXMOX_VE_ENDPOINT",
	"apiToken": "PROXMOX_VE_API_TOKEN",
	"username": "PROXMOX_VE_USERNAME",
	"password": "PROXMOX_VE_PASSWORD",
	"insecure": "PROXMOX_VE_INSECURE", "minTls": "PROXMOX_VE_MIN_TLS",
}

// checkConfig refuses settings without effect here. Keys that the engine adds itself pass.
func (s *server) checkConfig(_ context.Context, req p.CheckRequest) (p.CheckResponse, error) {
	c := &checker{}
	as := configuration()

	for name, v := range fromMap(req.Inputs) {
		a, known := as[name]

		switch {
		case name == "version" || name == "pluginDownloadURL" || strings.HasPrefix(name, "__"):
		case !known:
			c.fail(name, "the lab's stand-in does not support the provider's %s: check its spelling", name)
		case a.unsupported && v != nil:
			c.fail(
				name, "the lab's stand-in does not support the provider's %s: leave it out, or run against the published provider",
				name,
			)
		case name == "minTls":
			if v, ok := v.(string); ok {
				if _, err := minimumTLS(v); err != nil {
					c.fail(name, "%s", err)
				}
			}
		}
	}

	inputs := req.Inputs

	for name, a := range as {
		if v, ok := inputs.GetOk(name); ok && a.secret {
			inputs = inputs.Set(name, v.WithSecret(true))
		}
	}

	return p.CheckResponse{Inputs: inputs, Failures: c.failures}, nil
}

// diffConfig never replaces: new credentials must not recreate the machines.
func diffConfig(_ context.Context, req p.DiffRequest) (p.DiffResponse, error) {
	out := p.DiffResponse{DetailedDiff: map[string]p.PropertyDiff{}}

	for name := range configuration() {
		if !req.Inputs.Get(name).Equals(req.State.Get(name)) {
			out.DetailedDiff[name] = p.PropertyDiff{Kind: p.Update, InputDiff: true}
			out.HasChanges = true
		}
	}

	return out, nil
}

// configure takes the credentials. An endpoint that is an output of something else is unknown in previews, which do
// without.
func (s *server) configure(_ context.Context, req p.ConfigureRequest) error {
	setting := func(name string) string { return configured(req.Args.Get(name), environment[name]) }

	endpoint := setting("endpoint")

	if req.Args.Get("endpoint").IsComputed() {
		return nil
	}

	u, err := url.ParseRequestURI(endpoint)
	if err != nil || u.Scheme != "https" {
		return fmt.Errorf(
			"you must specify a secure endpoint for the Proxmox Virtual Environment API (valid: https://host:port/), got %q: "+
				"set proxmoxve:endpoint or PROXMOX_VE_ENDPOINT",
			endpoint,
		)
	}

	version, err := minimumTLS(setting("minTls"))
	if err != nil {
		return err
	}

	o := apiOptions{
		base:     "https://" + u.Host + "/api2/json",
		token:    setting("apiToken"),
		username: setting("username"),
		password: setting("password"),
		minTLS:   version,
		poll:     s.o.Poll,
		roots:    trusted(s.o.CertFile),
	}
	o.insecure, _ = strconv.ParseBool(setting("insecure"))

	if o.token == "" && (o.username == "" || o.password == "") {
		return errors.New("must provide either user credentials or an API token: set proxmoxve:apiToken (or PROXMOX_VE_API_TOKEN), or proxmoxve:username and proxmoxve:password")
	}

	if id, _, ok := strings.Cut(o.token, "="); o.token != "" && (!ok || !strings.Contains(id, "!") ||
		!strings.Contains(id, "@")) {
		return errors.New("the API token must be in the format 'USER@REALM!TOKENID=UUID': correct proxmoxve:apiToken")
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.api = newAPI(o)

	return nil
}

// configured returns a setting of the stack (a string, or a value of an explicit provider) or of the environment.
func configured(v property.Value, variable string) string {
	switch {
	case v.IsString() && v.AsString() != "":
		return v.AsString()
	case v.IsBool():
		return strconv.FormatBool(v.AsBool())
	}

	return os.Getenv(variable)
}

// minimumTLS is 1.3 unless set, which Proxmox VE 8 and 9 speak.
func minimumTLS(text string) (uint16, error) {
	versions := map[string]uint16{
		"":    tls.VersionTLS13,
		"1.3": tls.VersionTLS13,
		"1.2": tls.VersionTLS12,
		"1.1": tls.VersionTLS11,
		"1.0": tls.VersionTLS10,
	}

	if version, ok := versions[strings.TrimSpace(text)]; ok {
		return version, nil
	}

	return 0, fmt.Errorf("unsupported minimal TLS version %s, must be one of: 1.0, 1.1, 1.2, 1.3", text)
}

// trusted are the system's authorities and those of the file. One that cannot be read is none, as Go has it with
// SSL_CERT_FILE.
func trusted(file string) *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}

	if b, err := os.ReadFile(file); err == nil {
		pool.AppendCertsFromPEM(b)
	}

	return pool
}
