package kube

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

const (
	// masters is the group that may do everything.
	masters = "system:masters"
	// nodesGroup and nodePrefix make a kubelet's identity.
	nodesGroup = "system:nodes"
	nodePrefix = "system:node:"
)

// User is who makes a request.
type User struct {
	Name   string
	Groups []string
}

// NodeUser is the identity of a node's kubelet.
func NodeUser(node string) User { return User{Name: nodePrefix + node, Groups: []string{nodesGroup}} }

// Administrator is an identity that may do everything.
func Administrator() User { return User{Name: "admin", Groups: []string{masters}} }

// node is the node whose kubelet the user is.
func (u User) node() (string, bool) {
	name, found := strings.CutPrefix(u.Name, nodePrefix)

	return name, found && slices.Contains(u.Groups, nodesGroup)
}

// identify names the client by its certificate, which the TLS listener has verified.
func identify(state *tls.ConnectionState) User {
	if state == nil || len(state.VerifiedChains) == 0 {
		return User{Name: "system:anonymous"}
	}

	subject := state.PeerCertificates[0].Subject

	return User{Name: subject.CommonName, Groups: subject.Organization}
}

// authorize says why a user may not do something; nil when it may. Members of system:masters may do everything, a kubelet reads its own Node and changes nodes as
// far as [AdmitNode] lets it, and nobody else does anything beyond health and version.
func authorize(u User, r *http.Request) *StatusError {
	if slices.Contains(u.Groups, masters) {
		return nil
	}

	node, isNode := u.node()

	target, ok := parse(r.URL.Path)
	if !isNode || !ok || target.kind.Kind != "Node" {
		return forbidden(fmt.Sprintf("forbidden: User %q cannot %s path %q", u.Name, strings.ToLower(r.Method), r.URL.Path))
	}

	switch {
	case r.Method == http.MethodPatch:
		return nil
	case r.Method == http.MethodGet && target.name == node:
		return nil
	case r.Method == http.MethodGet && target.name == "":
		return forbidden(fmt.Sprintf("nodes is forbidden: User %q cannot list resource \"nodes\" in API group \"\" at the cluster scope: "+
			"node '%s' cannot read all nodes, only its own Node object", u.Name, node))
	case r.Method == http.MethodGet:
		return forbidden(fmt.Sprintf("nodes %q is forbidden: User %q cannot get resource \"nodes\" in API group \"\" at the cluster scope: "+
			"node '%s' cannot read '%s', only its own Node object", target.name, u.Name, node, target.name))
	default:
		return forbidden(fmt.Sprintf("nodes %q is forbidden: User %q cannot %s resource \"nodes\" in API group \"\" at the cluster scope",
			target.name, u.Name, strings.ToLower(r.Method)))
	}
}

func forbidden(message string) *StatusError {
	return &StatusError{Code: http.StatusForbidden, Reason: "Forbidden", Message: message}
}
