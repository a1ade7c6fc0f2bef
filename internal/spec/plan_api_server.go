package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// noPrefix is the prefix that stands for none, as in Kubernetes' own flags.
const noPrefix = "-"

var (
	auditGroupFormat = format{
		regexp.MustCompile(`^(\*|[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)$`),
		"is not an API group; write it without version, such as apps, or leave it out for the core group",
	}
	auditURLFormat = format{
		regexp.MustCompile(`^(/[^*]*)?\*?$`), "is not a path; write it as /healthz or, with * only at its end, /healthz*",
	}
	roleFormat = format{
		regexp.MustCompile(`^[^/%]+$`), "is not the name of a ClusterRole; write it as kubectl get clusterroles shows it",
	}
)

// WithDefaults returns a copy with the defaults; nil = Talos' own settings.
func (a *APIServer) WithDefaults() *APIServer {
	if a == nil {
		return nil
	}

	filled := *a

	if a.OIDC != nil {
		oidc := *a.OIDC
		setDefaults(reflect.ValueOf(&oidc).Elem())

		filled.OIDC = &oidc
	}

	if a.PodSecurity != nil {
		security := *a.PodSecurity
		setDefaults(reflect.ValueOf(&security).Elem())

		filled.PodSecurity = &security
	}

	return &filled
}

// Check reports problems of settings with defaults, below a path, for control planes of a version of Talos.
func (a *APIServer) Check(at, version string, found *problem.List) {
	p := &planner{problems: found}
	p.checkAPIServer(at, version, a)
}

// ForTalos returns the settings of machine configurations; none for nil.
func (a *APIServer) ForTalos() (settings talos.APIServer) {
	if a == nil {
		return settings
	}

	if a.OIDC != nil {
		o := *a.OIDC
		settings.OIDC = &talos.OIDC{
			Issuer: o.Issuer, ClientID: o.ClientID, CA: o.CA,
			UsernameClaim: o.UsernameClaim, UsernamePrefix: o.username(""),
			GroupsClaim: o.GroupsClaim, GroupsPrefix: o.group(""), RequiredClaims: o.RequiredClaims,
		}
	}

	if a.AuditPolicy != nil {
		text, _ := json.Marshal(a.AuditPolicy) // texts and booleans
		_ = json.Unmarshal(text, &settings.AuditPolicy)
	}

	if a.PodSecurity != nil {
		settings.PodSecurity = new(talos.PodSecurity(*a.PodSecurity))
	}

	return settings
}

// username and group return the name in the cluster of one of the issuer's.
func (o OIDC) username(name string) string { return withPrefix(o.UsernamePrefix, name) }
func (o OIDC) group(name string) string    { return withPrefix(o.GroupsPrefix, name) }

func withPrefix(prefix, name string) string {
	if prefix == noPrefix {
		return name
	}

	return prefix + name
}

// Bindings returns the groups that have a ClusterRole, by ClusterRole, with the names that they have in the cluster.
func (o OIDC) Bindings() map[string][]string {
	bindings := map[string][]string{}

	for role, groups := range o.ClusterRoles {
		for _, group := range groups {
			bindings[role] = append(bindings[role], o.group(group))
		}
	}

	return bindings
}

// planAPIServer plans the settings of a cluster's API servers; nil = Talos' own.
func (p *planner) planAPIServer(at string, a *APIServer, cluster Cluster) *APIServer {
	a = a.WithDefaults()
	if a == nil {
		return nil
	}

	p.checkAPIServer(at, cluster.TalosVersion, a)

	if a.OIDC != nil && a.OIDC.GroupsPrefix == noPrefix {
		p.warn("%s.oidc.groupsPrefix: whoever edits groups of the identity provider can be in a group of Kubernetes' own, "+
			"such as system:masters; leave it out, or set another one", at)
	}

	return a
}

func (p *planner) checkAPIServer(at, version string, a *APIServer) {
	if a.OIDC != nil {
		p.checkOIDC(at+".oidc", version, *a.OIDC)
	}

	if a.AuditPolicy != nil {
		p.checkAuditPolicy(at+".auditPolicy", *a.AuditPolicy)
	}

	if a.PodSecurity != nil {
		if levels := []string{"privileged", "baseline", "restricted"}; !slices.Contains(levels, a.PodSecurity.Enforce) &&
			!p.problems.Has(at+".podSecurity.enforce") {
			p.problems.Add(at+".podSecurity.enforce", a.PodSecurity.Enforce, "is not a valid value here; %s",
				Suggest(a.PodSecurity.Enforce, levels))
		}

		p.checkNames(at+".podSecurity.exemptNamespaces", a.PodSecurity.ExemptNamespaces, &labelFormat)
	}
}

// checkOIDC checks an identity provider as the API server does, which does not start with an invalid one.
func (p *planner) checkOIDC(at, version string, o OIDC) {
	if issuer, err := url.Parse(o.Issuer); o.Issuer != "" && (err != nil || issuer.Scheme != "https" || issuer.Host == "" ||
		issuer.User != nil || issuer.RawQuery != "" || issuer.Fragment != "") {
		p.problems.Add(at+".issuer", o.Issuer, "is not the address of an issuer, which Kubernetes accepts only with https://, and "+
			"without user, query and fragment; write it as https://id.example.org/realms/main")
	}

	for _, text := range []struct{ key, value, example string }{
		{"issuer", o.Issuer, "the address of the issuer"}, {"clientId", o.ClientID, "the client that tokens are issued for"},
	} {
		if text.value == "" {
			p.addMissing(at+"."+text.key, "is missing; set %s", text.example)
		}
	}

	p.checkCertificate(at+".ca", o.CA, "the authority of the issuer's certificate")

	release, err := talos.ReleaseOf(version)
	if err == nil && !release.ListArguments && len(o.RequiredClaims) > 1 {
		p.problems.Add(at+".requiredClaims", nil, "has several claims, and Talos %s can pass only one to the API server; use Talos "+
			"1.13 or newer, or remove all but one", version)
	}

	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		if claim == "" || o.RequiredClaims[claim] == "" || strings.Contains(claim, "=") {
			p.problems.Add(joinPath(at+".requiredClaims", claim), o.RequiredClaims[claim], "is not a claim with its value; "+
				"write it as hd: example.org")
		}
	}

	for _, role := range slices.Sorted(maps.Keys(o.ClusterRoles)) {
		groups := joinPath(at+".clusterRoles", role)
		if role == "" || role == "." || role == ".." || !roleFormat.pattern.MatchString(role) {
			p.problems.Add(groups, role, "%s", roleFormat.remedy)
		}

		if len(o.ClusterRoles[role]) == 0 {
			p.problems.Add(groups, nil, "has no groups; add one, or remove it")
		}

		p.checkNames(groups, o.ClusterRoles[role], nil)
	}
}

// checkNames reports names that are empty or there twice, or have another format.
func (p *planner) checkNames(at string, names []string, form *format) {
	for i, name := range names {
		path := fmt.Sprintf("%s[%d]", at, i)

		switch {
		case name == "":
			p.problems.Add(path, name, "is empty; write a name, or remove it")
		case slices.Contains(names[:i], name):
			p.problems.Add(path, name, "is there twice; remove one")
		case form != nil:
			p.checkFormat(path, name, *form)
		}
	}
}

// checkAuditPolicy checks what the keys' own rules do not, as Kubernetes does
// (k8s.io/apiserver v0.37.2, pkg/apis/audit/validation).
func (p *planner) checkAuditPolicy(at string, policy AuditPolicy) {
	if len(policy.Rules) == 0 {
		p.addMissing(at+".rules", "is empty; add at least 1 entry")
	}

	p.checkChoices(at+".omitStages", policy.OmitStages, auditStages())

	for i, rule := range policy.Rules {
		path := fmt.Sprintf("%s.rules[%d]", at, i)
		p.checkChoices(path+".omitStages", rule.OmitStages, auditStages())

		if level := path + ".level"; !slices.Contains(auditLevels(), rule.Level) && !p.problems.Has(level) {
			p.problems.Add(level, rule.Level, "is not a valid value here; %s", Suggest(rule.Level, auditLevels()))
		}

		if len(rule.NonResourceURLs) > 0 && len(rule.Resources)+len(rule.Namespaces) > 0 {
			p.problems.Add(path+".nonResourceURLs", nil, "is beside resources or namespaces, and one rule cannot have both; put it "+
				"into a rule of its own")
		}

		for j, text := range rule.NonResourceURLs {
			if one := fmt.Sprintf("%s.nonResourceURLs[%d]", path, j); text == "" {
				p.problems.Add(one, text, "%s", auditURLFormat.remedy)
			} else {
				p.checkFormat(one, text, auditURLFormat)
			}
		}

		for j, resources := range rule.Resources {
			one := fmt.Sprintf("%s.resources[%d]", path, j)
			p.checkFormat(one+".group", resources.Group, auditGroupFormat)

			if len(resources.ResourceNames) > 0 && len(resources.Resources) == 0 {
				p.problems.Add(one+".resourceNames", nil, "is set without resources; set them, too")
			}
		}
	}
}

func auditLevels() []string { return []string{"None", "Metadata", "Request", "RequestResponse"} }

func auditStages() []string {
	return []string{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}
}

// checkChoices reports values that are no choices, unless the keys' own rules have done so.
func (p *planner) checkChoices(at string, values, choices []string) {
	for i, value := range values {
		if path := fmt.Sprintf("%s[%d]", at, i); !slices.Contains(choices, value) && !p.problems.Has(path) {
			p.problems.Add(path, value, "is not a valid value here; %s", Suggest(value, choices))
		}
	}
}
