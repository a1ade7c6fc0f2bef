package kubeletapi

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Reviewer returns a client of the API server that reviews callers, and the node's name.
type Reviewer func() (client kubernetes.Interface, node string, err error)

// authHandler serves the callers that the API server authorizes.
type authHandler struct {
	authorities func() *x509.CertPool
	reviewer    Reviewer
	next        http.Handler
}

// ServeHTTP implements http.Handler.
func (g authHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, ok, err := g.authenticate(r)

	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	case !ok:
		http.Error(w, "Unauthorized", http.StatusUnauthorized)

		return
	}

	access := requestAttributes(r)
	about := fmt.Sprintf("(user=%s, verb=%s, resource=nodes, subresource(s)=[%s])",
		user.Username, access.Verb, access.Subresource)

	allowed, err := g.authorize(r.Context(), user, access)

	switch {
	case err != nil:
		http.Error(w, fmt.Sprintf("Authorization error %s: %s", about, err), http.StatusInternalServerError)
	case !allowed:
		http.Error(w, "Forbidden "+about, http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// authenticate returns the caller: the subject of a client certificate of the cluster's authority, or the user of a
// token.
func (g authHandler) authenticate(r *http.Request) (user authenticationv1.UserInfo, ok bool, err error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		certificate := r.TLS.PeerCertificates[0]

		if _, err := certificate.Verify(x509.VerifyOptions{
			Roots: g.authorities(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}); err == nil {
			user.Username, user.Groups = certificate.Subject.CommonName, certificate.Subject.Organization

			return user, true, nil
		}
	}

	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return user, false, nil
	}

	client, _, err := g.reviewer()
	if err != nil {
		return user, false, err
	}

	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err = client.AuthenticationV1().TokenReviews().Create(r.Context(), review, metav1.CreateOptions{})

	return review.Status.User, review.Status.Authenticated, err
}

// authorize reports whether a user may access the node.
func (g authHandler) authorize(
	ctx context.Context, u authenticationv1.UserInfo, access *authorizationv1.ResourceAttributes,
) (bool, error) {
	client, node, err := g.reviewer()
	if err != nil {
		return false, err
	}

	access.Name = node
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups, ResourceAttributes: access,
	}}
	review, err = client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})

	return review.Status.Allowed, err
}

// requestAttributes returns what a request accesses: the node's subresource healthz or, for everything else, proxy.
func requestAttributes(r *http.Request) *authorizationv1.ResourceAttributes {
	access := &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "proxy"}

	if r.Method == http.MethodPost {
		access.Verb = "create"
	}

	if r.URL.Path == "/healthz" {
		access.Subresource = "healthz"
	}

	return access
}
