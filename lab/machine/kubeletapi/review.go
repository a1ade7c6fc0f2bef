package kubeletapi

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
)

// User is who calls.
type User struct {
	Name, UID string
	Groups    []string
}

// Access is what a user wants of the node.
type Access struct {
	Verb, Subresource string
}

// Reviewer asks the API server about callers.
type Reviewer interface {
	// Authorities are those whose client certificates name a user.
	Authorities() *x509.CertPool
	// ReviewToken names the user of a token; false where the API server does not know it.
	ReviewToken(ctx context.Context, token string) (User, bool, error)
	// ReviewAccess says whether a user may do something with the node.
	ReviewAccess(ctx context.Context, user User, access Access) (bool, error)
}

// guarded lets no one in whom the reviewer does not.
type guarded struct {
	reviewer Reviewer
	next     http.Handler
}

// ServeHTTP implements http.Handler.
func (g guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, known, err := g.user(r)

	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	case !known:
		http.Error(w, "Unauthorized", http.StatusUnauthorized)

		return
	}

	access := accessOf(r)

	allowed, err := g.reviewer.ReviewAccess(r.Context(), user, access)

	switch {
	case err != nil:
		http.Error(w, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource(s)=[%s]): %s",
			user.Name, access.Verb, access.Subresource, err), http.StatusInternalServerError)
	case !allowed:
		http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=[%s])",
			user.Name, access.Verb, access.Subresource), http.StatusForbidden)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// user is who calls: by a client certificate of the cluster's authority, or by a token.
func (g guarded) user(r *http.Request) (User, bool, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		certificate := r.TLS.PeerCertificates[0]

		if _, err := certificate.Verify(x509.VerifyOptions{
			Roots: g.reviewer.Authorities(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}); err == nil {
			return User{Name: certificate.Subject.CommonName, Groups: certificate.Subject.Organization}, true, nil
		}
	}

	token, stated := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !stated {
		return User{}, false, nil
	}

	return g.reviewer.ReviewToken(r.Context(), token)
}

// accessOf is what a request needs: everything but health is the node's proxy to a kubelet.
func accessOf(r *http.Request) Access {
	a := Access{Verb: "get", Subresource: "proxy"}

	if r.Method == http.MethodPost {
		a.Verb = "create"
	}

	if r.URL.Path == "/healthz" {
		a.Subresource = "healthz"
	}

	return a
}
