package spec

// APIServer are the settings of a cluster's API servers: who logs in, what is recorded, and what pods may do.
type APIServer struct {
	// The identity provider whose users may log in, by OpenID Connect. Default: none; only holders of a kubeconfig or of a
	// ServiceAccount's token.
	OIDC *OIDC `json:"oidc,omitempty" pulumi:"oidc,optional"`
	// What is written to the audit log of each control plane, `/var/log/audit/kube/kube-apiserver.log`. Default: Talos'
	// own policy, the metadata of every request.
	AuditPolicy *AuditPolicy `json:"auditPolicy,omitempty" pulumi:"auditPolicy,optional"`
	// What pods may do in namespaces whose labels do not say so themselves. Default: Talos' own, `baseline`.
	PodSecurity *PodSecurity `json:"podSecurity,omitempty" pulumi:"podSecurity,optional"`
}

// OIDC is the identity provider whose users may log in, and what they may do.
type OIDC struct {
	// The issuer's address, as in the claim `iss` of its tokens.
	Issuer string `json:"issuer" jsonschema:"required,example=https://id.example.org/realms/main" pulumi:"issuer"`
	// The client that tokens must be issued for (claim `aud`).
	ClientID string `json:"clientId" jsonschema:"required,example=kubernetes" pulumi:"clientId"`
	// The certificate authority of the issuer, as PEM. Default: the public ones.
	CA string `json:"ca,omitempty" pulumi:"ca,optional"`
	// The claim with the user's name.
	UsernameClaim string `json:"usernameClaim,omitempty" jsonschema:"default=sub" pulumi:"usernameClaim,optional"`
	// What users' names begin with in the cluster, so that they are nobody else's; `-` = nothing.
	UsernamePrefix string `json:"usernamePrefix,omitempty" jsonschema:"default=oidc:" pulumi:"usernamePrefix,optional"`
	// The claim with the user's groups.
	GroupsClaim string `json:"groupsClaim,omitempty" jsonschema:"default=groups" pulumi:"groupsClaim,optional"`
	// What groups' names begin with in the cluster, so that they are nobody else's; `-` = nothing.
	GroupsPrefix string `json:"groupsPrefix,omitempty" jsonschema:"default=oidc:" pulumi:"groupsPrefix,optional"`
	// Claims that tokens must have, with their values.
	RequiredClaims map[string]string `json:"requiredClaims,omitempty" pulumi:"requiredClaims,optional"`
	// The issuer's groups, without prefix, that have a ClusterRole in the whole cluster, by ClusterRole.
	ClusterRoles map[string][]string `json:"clusterRoles,omitempty" pulumi:"clusterRoles,optional"`
}

// AuditPolicy is what is written to the audit log, in Kubernetes' own form.
type AuditPolicy struct {
	// The rules; the first that matches a request counts. A request that none matches is not recorded.
	Rules []AuditRule `json:"rules" jsonschema:"required,minItems=1" pulumi:"rules"`
	// Stages of requests that are not recorded.
	OmitStages []string `json:"omitStages,omitempty" jsonschema:"enum=RequestReceived,enum=ResponseStarted,enum=ResponseComplete,enum=Panic" pulumi:"omitStages,optional"`
	// Omit `managedFields` of objects.
	OmitManagedFields bool `json:"omitManagedFields,omitempty" jsonschema:"default=false" pulumi:"omitManagedFields,optional"`
}

// AuditRule says what is recorded of the requests that it matches.
type AuditRule struct {
	// What is recorded: nothing, who requested what, also the request's object, or also the response's.
	Level string `json:"level" jsonschema:"required,enum=None,enum=Metadata,enum=Request,enum=RequestResponse" pulumi:"level"`
	// Users. Default: all.
	Users []string `json:"users,omitempty" pulumi:"users,optional"`
	// Groups of users, one of which must have made the request. Default: all.
	UserGroups []string `json:"userGroups,omitempty" pulumi:"userGroups,optional"`
	// Verbs. Default: all.
	Verbs []string `json:"verbs,omitempty" jsonschema:"example=create" pulumi:"verbs,optional"`
	// Resources. Default: all.
	Resources []AuditResources `json:"resources,omitempty" pulumi:"resources,optional"`
	// Namespaces; an empty text is for objects without a namespace. Default: all.
	Namespaces []string `json:"namespaces,omitempty" pulumi:"namespaces,optional"`
	// Paths that are no resources, such as `/healthz*`; not beside `resources` and `namespaces`.
	NonResourceURLs []string `json:"nonResourceURLs,omitempty" pulumi:"nonResourceUrls,optional"`
	// Stages that are not recorded, in addition to those of the policy.
	OmitStages []string `json:"omitStages,omitempty" jsonschema:"enum=RequestReceived,enum=ResponseStarted,enum=ResponseComplete,enum=Panic" pulumi:"omitStages,optional"`
	// Omit `managedFields` of objects. Default: as the policy.
	OmitManagedFields *bool `json:"omitManagedFields,omitempty" pulumi:"omitManagedFields,optional"`
}

// AuditResources are resources of an API group.
type AuditResources struct {
	// The API group. Default: the core group.
	Group string `json:"group,omitempty" jsonschema:"example=apps" pulumi:"group,optional"`
	// The resources, such as `pods`, `pods/exec`, `pods/*` or `*/scale`. Default: all of the group.
	Resources []string `json:"resources,omitempty" pulumi:"resources,optional"`
	// Names of objects. Default: all.
	ResourceNames []string `json:"resourceNames,omitempty" pulumi:"resourceNames,optional"`
}

// PodSecurity is what pods may do, by Kubernetes' Pod Security Standards.
type PodSecurity struct {
	// The standard that pods must meet: `privileged` = none, `baseline` = no known privilege escalations, `restricted` =
	// hardened.
	Enforce string `json:"enforce,omitempty" jsonschema:"default=baseline,enum=privileged,enum=baseline,enum=restricted" pulumi:"enforce,optional"`
	// Namespaces in which pods may do anything, in addition to `kube-system`.
	ExemptNamespaces []string `json:"exemptNamespaces,omitempty" jsonschema:"example=rook-ceph" pulumi:"exemptNamespaces,optional"`
}
