package spec

// GitOpsConfig is the source that Flux reconciles a cluster from. The program installs the operator of Flux, the
// instance, the credentials and the ConfigMap `cluster-facts`; everything else is in the repository.
type GitOpsConfig struct {
	GitOps
	// The chart of Flux' operator.
	Operator OperatorChartConfig `json:"operator,omitempty"`
}

// GitOps is the source that Flux reconciles. The resource installs Flux' operator and the instance, with credentials,
// keys and the ConfigMap cluster-facts, and waits for the first reconciliation. Deleting it keeps everything in the
// cluster.
type GitOps struct {
	// The kind of source: `git` = a Git repository, `oci` = an artifact in a container registry.
	Kind string `json:"kind,omitempty" jsonschema:"default=git,enum=git,enum=oci" pulumi:"kind,optional"`
	// The address: `ssh://git@host/path` or `https://host/path`; for an artifact `oci://host/path`, without a tag.
	URL string `json:"url" jsonschema:"required,example=ssh://git@github.com/example/fleet" pulumi:"url"`
	// The full ref of the branch or tag; for an artifact its tag. Default: `refs/heads/main`, for an artifact `latest`.
	Ref string `json:"ref,omitempty" jsonschema:"example=refs/heads/main" pulumi:"ref,optional"`
	// The directory to reconcile. Default: `clusters/<cluster>`.
	Path string `json:"path,omitempty" jsonschema:"example=clusters/prod" pulumi:"path,optional"`
	// How often Flux checks for changes, such as `1m` or `30s`.
	Interval string `json:"interval,omitempty" jsonschema:"default=1m" pulumi:"interval,optional"`
	// The signatures that the source must have. Default: signatures are not verified.
	Verify *Verify `json:"verify,omitempty" pulumi:"verify,optional"`
	// Disable multi-tenancy restrictions: Flux objects in any namespace may use sources of other namespaces, remote
	// bases, and all rights of Flux. By default only those in `flux-system` have all rights, and others need a
	// ServiceAccount.
	SingleTenant bool `json:"singleTenant,omitempty" jsonschema:"default=false" pulumi:"singleTenant,optional"`
	// The version of Flux, without v, which the operator must support.
	Version string `json:"version,omitempty" jsonschema:"default=2.9.5" pulumi:"version"`
	// The chart of Flux' operator: oci://…, https://….tgz, or a file.
	Chart string `json:"-" pulumi:"chart"`
	// The chart's version.
	ChartVersion string `json:"-" pulumi:"chartVersion"`
	// The digest of the chart's archive or manifest. Default: any.
	Digest string `json:"-" pulumi:"digest,optional"`
	// How many seconds `up` waits for the operator, the controllers and the first reconciliation.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty" jsonschema:"default=900,minimum=30,maximum=7200" pulumi:"timeoutSeconds,optional"`
	// The credentials for the source, which the state stores as secrets. Default: none; the source is public.
	PullSecret *PullSecret `json:"pullSecret,omitempty" pulumi:"pullSecret,optional"`
	// The secret keys of age (`AGE-SECRET-KEY-…`, one per line) that decrypt SOPS files of the repository; must be stored
	// encrypted. Default: none.
	Age string `json:"age,omitempty" pulumi:"age,optional"`
	// Additional entries of the ConfigMap cluster-facts. Default: none.
	Facts map[string]string `json:"-" pulumi:"facts,optional"`
}

// Verify are the signatures that the source must have: of keys, or with `kind: oci` of the identity in a certificate.
type Verify struct {
	// Public keys, one of which must have signed the newest commit (armoured PGP, or SSH as `ssh-ed25519 …`) or the
	// artifact (cosign's, PEM).
	Keys []string `json:"keys,omitempty" pulumi:"keys,optional"`
	// The issuer of the identity of a keyless cosign signature, as a regular expression.
	Issuer string `json:"issuer,omitempty" jsonschema:"example=^https://token\\.actions\\.githubusercontent\\.com$" pulumi:"issuer,optional"`
	// The subject of that identity, as a regular expression; required with `issuer`.
	Subject string `json:"subject,omitempty" jsonschema:"example=^https://github\\.com/example/fleet/.*$" pulumi:"subject,optional"`
}

// PullSecret are the credentials of Flux for its source: a key for `ssh://`, a user for `https://` and `oci://`.
type PullSecret struct {
	// The private SSH key, in OpenSSH format and without a passphrase; must be stored encrypted.
	Identity string `json:"identity,omitempty" pulumi:"identity,optional"`
	// The public keys of the server, as `ssh-keyscan` prints them; required with `identity`.
	KnownHosts string `json:"knownHosts,omitempty" pulumi:"knownHosts,optional"`
	// The user; with a token, what the server expects, often `git`.
	Username string `json:"username,omitempty" pulumi:"username,optional"`
	// The user's password, or a token; must be stored encrypted.
	Password string `json:"password,omitempty" pulumi:"password,optional"`
	// The certificate authority of an https server, as PEM. Default: the public ones.
	CA string `json:"ca,omitempty" pulumi:"ca,optional"`
}

// OperatorChartConfig is the chart of Flux' operator.
type OperatorChartConfig struct {
	// The address of the chart: `oci://…`, `https://….tgz`, or a file, also below `~/`.
	Chart string `json:"chart,omitempty" jsonschema:"default=oci://ghcr.io/controlplaneio-fluxcd/charts/flux-operator"`
	// The chart's version.
	Version string `json:"version,omitempty" jsonschema:"default=0.59.0"`
	// The digest (`sha256:…`) of the archive or, in a registry, of its manifest. Default: any.
	Digest string `json:"digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
}
