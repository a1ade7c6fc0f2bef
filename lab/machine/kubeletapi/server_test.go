package kubeletapi_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/lab/machine/container"
	"talos-proxmox/lab/machine/kubeletapi"
)

// node is a node with one container and two users.
type node struct{ broken error }

func (node) Authorities() *x509.CertPool { return x509.NewCertPool() }

func (n node) ReviewToken(_ context.Context, token string) (kubeletapi.User, bool, error) {
	return kubeletapi.User{Name: token}, token != "stranger", n.broken
}

func (node) ReviewAccess(_ context.Context, u kubeletapi.User, a kubeletapi.Access) (bool, error) {
	return u.Name == "admin" || a.Subresource == "healthz", nil
}

func (node) CopyLog(ctx context.Context, of kubeletapi.Name, previous bool, o container.LogOptions, w io.Writer) error {
	switch {
	case of != kubeletapi.Name{Namespace: "ns", Pod: "pod", Container: "main"}:
		return kubeletapi.NotFoundError{Text: "no such pod"}
	case previous:
		return errors.New("no previous container")
	}

	var log container.Log

	_, _ = log.Write([]byte("one\ntwo\n"))
	log.Close()

	return log.Copy(ctx, w, o)
}

func (node) Exec(context.Context, kubeletapi.Name, []string, container.Streams) (int, error) {
	return 0, nil
}
func (node) Attach(context.Context, kubeletapi.Name, container.Streams) error { return nil }

func TestWhoIsLetIn(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		user, method, path string
		broken             error
		code               int
		text               string
	}{
		"nobody":     {path: "/healthz", code: 401, text: "Unauthorized"},
		"a stranger": {user: "stranger", path: "/healthz", code: 401, text: "Unauthorized"},
		"an API server that does not answer": {
			user:   "admin",
			path:   "/healthz",
			broken: errors.New("the kubelet reaches no API server"),
			code:   500,
			text:   "reaches no API server",
		},
		"a user with a part of the rights": {user: "user", path: "/healthz", code: 200, text: "ok"},
		"without the right": {
			user: "user", path: "/containerLogs/ns/pod/main", code: 403,
			text: "Forbidden (user=user, verb=get, resource=nodes, subresource(s)=[proxy])",
		},
		"a command without the right": {
			user: "user", method: http.MethodPost, path: "/exec/ns/pod/main?command=sh&output=1", code: 403, text: "verb=create",
		},
		"a log":          {user: "admin", path: "/containerLogs/ns/pod/main?tailLines=1", code: 200, text: "two\n"},
		"an unknown pod": {user: "admin", path: "/containerLogs/ns/other/main", code: 404, text: "no such pod"},
		"a log that is not": {
			user: "admin", path: "/containerLogs/ns/pod/main?previous=true", code: 400, text: "no previous container",
		},
		"a bad number": {user: "admin", path: "/containerLogs/ns/pod/main?tailLines=-1", code: 422, text: "tailLines"},
		"a bad flag":   {user: "admin", path: "/containerLogs/ns/pod/main?follow=perhaps", code: 422, text: "perhaps"},
		"a bad time":   {user: "admin", path: "/containerLogs/ns/pod/main?sinceTime=noon", code: 422, text: "noon"},
		"no stream": {
			user: "admin", path: "/exec/ns/pod/main?command=sh", code: 400, text: "at least 1 of stdin, stdout, stderr",
		},
		"what is not offered": {user: "admin", path: "/stats/summary", code: 404, text: "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			method := test.method
			if method == "" {
				method = http.MethodGet
			}

			request := httptest.NewRequestWithContext(t.Context(), method, test.path, nil)
			if test.user != "" {
				request.Header.Set("Authorization", "Bearer "+test.user)
			}

			answer := httptest.NewRecorder()
			n := node{test.broken}
			kubeletapi.NewHandler(n, n).ServeHTTP(answer, request)
			assert.Equal(t, test.code, answer.Code, answer.Body.String())
			assert.Contains(t, answer.Body.String(), test.text)
		})
	}
}
