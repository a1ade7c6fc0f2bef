// Package proxmoxapi is a client of Proxmox VE's API with a stack's own endpoint and credentials, like the provider
// proxmoxve.
package proxmoxapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/luthermonson/go-proxmox"
)

// Setting returns a setting of the provider by its key, such as apiToken; empty = not set.
type Setting func(key string) string

// environmentVariables are read by the published provider for settings that its configuration does not have. All parts
// of the provider read these; only some read PM_VE_….
var environmentVariables = map[string]string{ //nolint:gosec // names of variables
	"endpoint":            "PROXMOX_VE_ENDPOINT",
	"insecure":            "PROXMOX_VE_INSECURE",
	"apiToken":            "PROXMOX_VE_API_TOKEN",
	"username":            "PROXMOX_VE_USERNAME",
	"password":            "PROXMOX_VE_PASSWORD",
	"otp":                 "PROXMOX_VE_OTP",
	"authTicket":          "PROXMOX_VE_AUTH_TICKET",
	"csrfPreventionToken": "PROXMOX_VE_CSRF_PREVENTION_TOKEN",
}

// Settings reads settings like the published provider: from its configuration, then from the environment.
func Settings(configured, environment func(string) string) Setting {
	return func(key string) string { return cmp.Or(configured(key), environment(environmentVariables[key])) }
}

// IsSetting reports whether the client reads a setting with this key.
func IsSetting(key string) bool { return environmentVariables[key] != "" }

// Configured returns the settings that a stack's configuration has, without those of the environment. They include
// secrets.
func Configured(configured func(string) string) map[string]string {
	settings := map[string]string{}

	for key := range environmentVariables {
		if value := configured(key); value != "" {
			settings[key] = value
		}
	}

	return settings
}

// Connect creates a client; a nil transport is HTTP's default. It sends a request only to log in with a password.
func Connect(ctx context.Context, value Setting, transport http.RoundTripper) (*proxmox.Client, error) {
	endpoint, err := url.Parse(value("endpoint"))
	if err != nil || endpoint.Scheme != "https" || endpoint.Host == "" {
		return nil, errors.New("proxmoxve:endpoint is not of the form https://host:8006/")
	}

	httpClient := &http.Client{Transport: errorTransport{insecureTransport(value, transport)}}
	options := []proxmox.Option{proxmox.WithHTTPClient(httpClient)}

	token, ticket := value("apiToken"), value("authTicket")

	username, password := value("username"), value("password")
	switch {
	case token != "":
		id, secret, _ := strings.Cut(token, "=")
		options = append(options, proxmox.WithAPIToken(id, secret))
	case ticket != "":
		options = append(options, proxmox.WithSession(ticket, value("csrfPreventionToken")))
	case username != "" && password != "":
		options = append(
			options, proxmox.WithCredentials(&proxmox.Credentials{Username: username, Password: password, Otp: value("otp")}),
		)
	default:
		return nil, errors.New("there are no credentials for Proxmox: set proxmoxve:apiToken, or set PROXMOX_VE_API_TOKEN")
	}

	client := proxmox.NewClient("https://"+endpoint.Host+"/api2/json", options...)
	if token == "" && ticket == "" {
		if err := client.CreateSession(ctx); err != nil {
			return nil, fmt.Errorf("unable to log in to Proxmox: %w", Cause(err))
		}
	}

	return client, nil
}

// Identity returns the user, or the token with its user, of the credentials.
func Identity(value Setting) string {
	token, ticket := value("apiToken"), value("authTicket")
	switch {
	case token != "":
		id, _, _ := strings.Cut(token, "=")

		return id
	case ticket != "": // PVE:root@pam:66F2…
		words := strings.SplitN(ticket, ":", 3)
		if len(words) < 3 {
			return ""
		}

		return words[1]
	default:
		return value("username")
	}
}

// insecureTransport returns the transport, modified to trust any certificate if the user configures that.
func insecureTransport(value Setting, transport http.RoundTripper) http.RoundTripper {
	if transport == nil {
		transport = http.DefaultTransport
	}

	plain, ok := transport.(*http.Transport)
	if insecure, _ := strconv.ParseBool(value("insecure")); !insecure || !ok {
		return transport
	}

	plain = plain.Clone()
	if plain.TLSClientConfig == nil {
		plain.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}

	plain.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // the user's explicit choice, as for the provider

	return plain
}

// errorTransport turns error responses into errors with Proxmox' own message, some of which the client hides.
type errorTransport struct{ next http.RoundTripper }

// apiError is an error response of Proxmox.
type apiError struct {
	code         int
	status, body string
}

func (r *apiError) Error() string {
	return strings.TrimSpace("Proxmox answers " + r.status + " " + r.body)
}

// RoundTrip is part of http.RoundTripper.
func (t errorTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusBadRequest {
		return response, err
	}
	defer response.Body.Close() //nolint:errcheck // it is read

	var answer struct {
		Errors map[string]string `json:"errors"`
	}

	body, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) //nolint:errcheck // the status says enough

	r := &apiError{code: response.StatusCode, status: response.Status}

	if json.Unmarshal(body, &answer) == nil && len(answer.Errors) > 0 {
		for name, complaint := range answer.Errors { // some messages end with a line break
			answer.Errors[name] = strings.TrimSpace(complaint)
		}

		r.body = fmt.Sprint(answer.Errors)
	}

	return nil, r
}

// StatusCode returns the status code of an error response of Proxmox; 0 for any other error.
func StatusCode(err error) int {
	if r := new(apiError); errors.As(err, &r) {
		return r.code
	}

	return 0
}

// Cause unwraps an error response of Proxmox from the error about its request.
func Cause(err error) error {
	if r := new(apiError); errors.As(err, &r) {
		return r
	}

	return err
}
