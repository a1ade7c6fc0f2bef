package proxmoxve

import (
	"context"
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

// configurationTable has the provider's own properties.
func configurationTable() attributes {
	return attributes{
		"apiToken": {secret: true},
		"endpoint": {},
		"insecure": {kind: boolean},
		"password": {secret: true},
		"username": {},
	}
}

// environmentVariables are the published environment variables. The older names (PM_VE_…) are not supported: half of
// the published provider does not read them.
var environmentVariables = map[string]string{ //nolint:gosec // names of variables
	"endpoint": "PROXMOX_VE_ENDPOINT",
	"apiToken": "PROXMOX_VE_API_TOKEN",
	"username": "PROXMOX_VE_USERNAME",
	"password": "PROXMOX_VE_PASSWORD",
	"insecure": "PROXMOX_VE_INSECURE",
}

// checkConfig refuses unknown settings, except those that the engine adds.
func (s *server) checkConfig(_ context.Context, req p.CheckRequest) (p.CheckResponse, error) {
	c := &checker{}
	as := configurationTable()

	for name, v := range fromMap(req.Inputs) {
		engines := name == "version" || name == "pluginDownloadURL" || strings.HasPrefix(name, "__")
		if _, known := as[name]; !known && !engines && v != nil {
			c.unknownProperty(name)
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

// diffConfig never replaces: new credentials must not recreate machines.
func diffConfig(_ context.Context, req p.DiffRequest) (p.DiffResponse, error) {
	out := p.DiffResponse{DetailedDiff: map[string]p.PropertyDiff{}}

	for name := range configurationTable() {
		if !req.Inputs.Get(name).Equals(req.State.Get(name)) {
			out.DetailedDiff[name] = p.PropertyDiff{Kind: p.Update, InputDiff: true}
			out.HasChanges = true
		}
	}

	return out, nil
}

// configure reads endpoint and credentials. An endpoint that is an output of another resource is unknown in previews,
// which work without it.
func (s *server) configure(_ context.Context, req p.ConfigureRequest) error {
	setting := func(name string) string { return lookupSetting(req.Args.Get(name), environmentVariables[name]) }

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

	o := apiOptions{
		base:     "https://" + u.Host + "/api2/json",
		token:    setting("apiToken"),
		username: setting("username"),
		password: setting("password"),
		poll:     s.poll,
		roots:    s.roots,
	}
	o.insecure, _ = strconv.ParseBool(setting("insecure"))

	if o.token == "" && (o.username == "" || o.password == "") {
		return errors.New("must provide either user credentials or an API token: set proxmoxve:apiToken (or PROXMOX_VE_API_TOKEN), or proxmoxve:username and proxmoxve:password")
	}

	if id, _, ok := strings.Cut(o.token, "="); o.token != "" && (!ok || !strings.Contains(id, "!") ||
		!strings.Contains(id, "@")) {
		return errors.New("the API token must be in the format 'USER@REALM!TOKENID=UUID': correct proxmoxve:apiToken")
	}

	s.api = newAPI(o)

	return nil
}

// lookupSetting returns a setting of the stack (a string, or a value of an explicit provider), or of the environment.
func lookupSetting(v property.Value, variable string) string {
	switch {
	case v.IsString() && v.AsString() != "":
		return v.AsString()
	case v.IsBool():
		return strconv.FormatBool(v.AsBool())
	}

	return os.Getenv(variable)
}
