package proxmoxve

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfigure(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		args    object
		problem string
	}{
		"a token": {object{"endpoint": "https://127.0.0.1:8006/", "apiToken": testToken}, ""},
		"a user with a password": {
			object{"endpoint": "https://127.0.0.1:8006", "username": "root@pam", "password": "p"}, "",
		},
		"an endpoint not known yet": {object{"endpoint": unknown{}}, ""},
		"no endpoint":               {object{"apiToken": testToken}, "set proxmoxve:endpoint"},
		"an endpoint without TLS":   {object{"endpoint": "http://127.0.0.1:8006", "apiToken": testToken}, "secure endpoint"},
		"no credentials":            {object{"endpoint": "https://127.0.0.1:8006"}, "set proxmoxve:apiToken"},
		"a user without a password": {
			object{"endpoint": "https://127.0.0.1:8006", "username": "root@pam"}, "set proxmoxve:apiToken",
		},
		"a token without a secret": {
			object{"endpoint": "https://127.0.0.1:8006", "apiToken": "root@pam!x"}, "USER@REALM!TOKENID=UUID",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := Provider(testPoll, nil).Configure(
				t.Context(), p.ConfigureRequest{Args: toProperties(test.args)},
			)
			if test.problem == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.problem)
			}
		})
	}
}

//nolint:paralleltest // the environment is the process's
func TestTheEnvironmentConfigures(t *testing.T) {
	_, endpoint := newLab(t)
	t.Setenv("PROXMOX_VE_ENDPOINT", endpoint)
	t.Setenv("PROXMOX_VE_API_TOKEN", testToken)
	t.Setenv("PROXMOX_VE_INSECURE", "true")

	server := Provider(5*time.Millisecond, nil)
	require.NoError(t, server.Configure(t.Context(), p.ConfigureRequest{}))

	_, err := testProvider{t, server}.create(typeDownloadFile, talosImage())
	require.NoError(t, err)
}

func TestCheckConfig(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		args     object
		property string
	}{
		"what is supported": {
			object{"endpoint": "https://127.0.0.1:8006", "apiToken": "t", "insecure": true, "version": "6.18.1"}, "",
		},
		"a ticket is not":      {object{"authTicket": "x"}, "authTicket"},
		"SSH settings are not": {object{"ssh": object{"agent": true}}, "ssh"},
		"a misspelt setting":   {object{"endpiont": "x"}, "endpiont"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			resp, err := Provider(testPoll, nil).CheckConfig(
				t.Context(), p.CheckRequest{Inputs: toProperties(test.args)},
			)
			require.NoError(t, err)

			if test.property == "" {
				assert.Empty(t, resp.Failures)
				assert.True(t, resp.Inputs.Get("apiToken").Secret())
			} else {
				require.Len(t, resp.Failures, 1)
				assert.Equal(t, test.property, resp.Failures[0].Property)
			}
		})
	}
}

func TestNewCredentialsReplaceNothing(t *testing.T) {
	t.Parallel()

	resp, err := Provider(testPoll, nil).DiffConfig(t.Context(), p.DiffRequest{
		State: toProperties(object{"apiToken": "old"}), Inputs: toProperties(object{"apiToken": "new"}),
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]p.PropertyDiff{"apiToken": {Kind: p.Update, InputDiff: true}}, resp.DetailedDiff)
}

func TestUnsupportedRequests(t *testing.T) {
	t.Parallel()

	s := Provider(testPoll, nil)

	_, err := s.Read(t.Context(), p.ReadRequest{Urn: urn(typeVirtualMachine), ID: "100"})
	require.ErrorIs(t, err, errNotConfigured)

	r := newTestProvider(t, "https://127.0.0.1:1")
	_, err = r.p.Read(t.Context(), p.ReadRequest{Urn: urn(typeToken), ID: "one@pve!two"})
	require.ErrorContains(t, err, "does not import")

	_, err = r.p.Read(t.Context(), p.ReadRequest{Urn: urn(typeVirtualMachine), ID: "100"})
	require.ErrorContains(t, err, "unexpected format of ID (100), expected node/id")

	_, err = s.Check(t.Context(), p.CheckRequest{Urn: urn("proxmoxve:Storage/file:File")})
	require.ErrorContains(t, err, "stand-in does not know proxmoxve:Storage/file:File")
}

func TestAPasswordGetsATicketOnce(t *testing.T) {
	t.Parallel()

	var tickets, calls atomic.Int32

	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/access/ticket") {
			tickets.Add(1)
			assert.NoError(t, r.ParseForm())
			assert.Equal(t, url.Values{"username": {"root@pam"}, "password": {"p"}}, r.PostForm)

			_, _ = w.Write([]byte(`{"data":{"ticket":"PVE:root","CSRFPreventionToken":"csrf"}}`))

			return
		}

		calls.Add(1)
		assert.Equal(t, "PVEAuthCookie=PVE:root", r.Header.Get("Cookie"))

		_, _ = w.Write([]byte(`{"data":[{"vmid":101,"node":"pve1"}]}`))
	}))
	t.Cleanup(server.Close)

	a := newAPI(
		apiOptions{base: server.URL + "/api2/json", username: "root@pam", password: "p", insecure: true, poll: testPoll},
	)

	for range 2 {
		host, err := a.locate(t.Context(), 101)
		require.NoError(t, err)
		assert.Equal(t, "pve1", host)
	}

	assert.Equal(t, int32(1), tickets.Load())
	assert.Equal(t, int32(2), calls.Load())
}

// TestCertificatesAreVerified connects to a Proxmox with an unknown certificate authority. The engine's tests set
// SSL_CERT_FILE.
func TestCertificatesAreVerified(t *testing.T) {
	t.Parallel()

	_, endpoint := newLab(t)
	r := testProvider{t, Provider(testPoll, nil)}
	require.NoError(t, r.p.Configure(t.Context(), p.ConfigureRequest{Args: property.NewMap(map[string]property.Value{
		"endpoint": property.New(endpoint), "apiToken": property.New(testToken),
	})}))

	_, err := r.create(typeDownloadFile, talosImage())
	require.ErrorContains(t, err, "tls: failed to verify certificate: x509: certificate signed by unknown authority")
}
