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
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"talos-proxmox/lab/machine/container"
	"talos-proxmox/lab/machine/kubeletapi"
)

// node is a node with one container.
type node struct{}

func (node) CopyLog(ctx context.Context, of kubeletapi.ContainerName, o corev1.PodLogOptions, w io.Writer) error {
	switch {
	case of != kubeletapi.ContainerName{Namespace: "ns", Pod: "pod", Container: "main"}:
		return kubeletapi.NotFoundError{Text: "no such pod"}
	case o.Previous:
		return errors.New("no previous container")
	}

	var log container.Log

	_, _ = log.Write([]byte("one\ntwo\n"))
	log.Close()

	return log.Copy(ctx, w, o)
}

func (node) Exec(context.Context, kubeletapi.ContainerName, []string, container.Streams) (int, error) {
	return 0, nil
}

func (node) Attach(context.Context, kubeletapi.ContainerName, container.Streams) error { return nil }

// reviewer returns an API server with two users, which may be unreachable.
func reviewer(broken error) kubeletapi.Reviewer {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		review.Status.User.Username = review.Spec.Token
		review.Status.Authenticated = review.Spec.Token != "stranger"

		return true, review, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = review.Spec.User == "admin" || review.Spec.ResourceAttributes.Subresource == "healthz"

		return true, review, nil
	})

	return func() (kubernetes.Interface, string, error) { return client, "node-1", broken }
}

func TestAuthorization(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		user, method, path string
		broken             error
		code               int
		text               string
	}{
		"nobody":     {path: "/healthz", code: 401, text: "Unauthorized"},
		"a stranger": {user: "stranger", path: "/healthz", code: 401, text: "Unauthorized"},
		"an unreachable API server": {
			user:   "admin",
			path:   "/healthz",
			broken: errors.New("the kubelet reaches no API server"),
			code:   500,
			text:   "reaches no API server",
		},
		"an authorized user": {user: "user", path: "/healthz", code: 200, text: "ok"},
		"an unauthorized user": {
			user: "user", path: "/containerLogs/ns/pod/main", code: 403,
			text: "Forbidden (user=user, verb=get, resource=nodes, subresource(s)=[proxy])",
		},
		"an unauthorized command": {
			user: "user", method: http.MethodPost, path: "/exec/ns/pod/main?command=sh&output=1", code: 403, text: "verb=create",
		},
		"a log":          {user: "admin", path: "/containerLogs/ns/pod/main?tailLines=1", code: 200, text: "two\n"},
		"an unknown pod": {user: "admin", path: "/containerLogs/ns/other/main", code: 404, text: "no such pod"},
		"a missing log": {
			user: "admin", path: "/containerLogs/ns/pod/main?previous=true", code: 400, text: "no previous container",
		},
		"a bad number": {user: "admin", path: "/containerLogs/ns/pod/main?tailLines=all", code: 422, text: "all"},
		"a bad time":   {user: "admin", path: "/containerLogs/ns/pod/main?sinceTime=noon", code: 422, text: "noon"},
		"no stream": {
			user: "admin", path: "/exec/ns/pod/main?command=sh", code: 400, text: "at least 1 of stdin, stdout, stderr",
		},
		"an unknown path": {user: "admin", path: "/stats/summary", code: 404, text: "not found"},
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
			kubeletapi.NewHandler(node{}, x509.NewCertPool, reviewer(test.broken)).ServeHTTP(answer, request)
			assert.Equal(t, test.code, answer.Code, answer.Body.String())
			assert.Contains(t, answer.Body.String(), test.text)
		})
	}
}
