package spec

// GitOpsConfig is the source that Flux reconciles a cluster from. The program installs the operator of Flux, the
// instance, the credentials and the ConfigMap `cluster-facts`; everything else is in the repository.
type GitOpsConfig struct {
	// The kind of source: `git` = a Git repository, `oci` = an artifact in a container registry.
	Kind string `json:"kind,omitempty" jsonschema:"default=git,enum=git,enum=oci"`
	// The address: `ssh://git@host/path` or `https://host/path`; for an artifact `oci://host/path`, without a tag.
	URL string `json:"url" jsonschema:"required,example=ssh://git@github.com/example/fleet"`
	// The full ref of the branch or tag; for an artifact its tag. Default: `refs/heads/main`, for an artifact `latest`.
	Ref string `json:"ref,omitempty" jsonschema:"example=refs/heads/main"`
	// The directory to reconcile. Default: `clusters/<cluster>`.
	Path string `json:"path,omitempty" jsonschema:"example=clusters/prod"`
	// How often Flux checks for changes, such as `1m` or `30s`.
	Interval string `json:"interval,omitempty" jsonschema:"default=1m"`
	// The credentials for the source. Default: none; the source is public.
	PullSecret PullSecretConfig `json:"pullSecret,omitempty"`
	// The secret keys of age (`AGE-SECRET-KEY-…`, one per line) that decrypt SOPS files of the repository; must be stored
	// encrypted. Default: none.
	Age string `json:"age,omitempty"`
	// The signatures that the source must have. Default: signatures are not verified.
	Verify VerifyConfig `json:"verify,omitempty"`
	// Disable multi-tenancy restrictions: Flux objects in any namespace may use sources of other namespaces, remote
	// bases, and all rights of Flux. By default only those in `flux-system` have all rights, and others need a
	// ServiceAccount.
	SingleTenant bool `json:"singleTenant,omitempty"`
	// The version of Flux, without v, which the operator must support.
	Version string `json:"version,omitempty" jsonschema:"default=2.9.5"`
	// The chart of Flux' operator.
	Operator OperatorChartConfig `json:"operator,omitempty"`
	// How many seconds `up` waits for the operator, the controllers and the first reconciliation.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty" jsonschema:"default=900,minimum=30,maximum=7200"`
}

// VerifyConfig are the signatures that the source must have: of keys, or with `kind: oci` of the identity in a
// certificate.
type VerifyConfig struct {
	// Public keys, one of which must have signed the newest commit (armoured PGP, or SSH as `ssh-ed25519 …`) or the
	// artifact (cosign's, PEM).
	Keys []string `json:"keys,omitempty"`
	// The issuer of the identity of a keyless cosign signature, as a regular expression.
	Issuer string `json:"issuer,omitempty" jsonschema:"example=^https://token\\.actions\\.githubusercontent\\.com$"`
	// The subject of that identity, as a regular expression; required with `issuer`.
	Subject string `json:"subject,omitempty" jsonschema:"example=^https://github\\.com/example/fleet/.*$"`
}

// PullSecretConfig are the credentials of Flux for its source: a key for `ssh://`, a user for `https://` and `oci://`.
type PullSecretConfig struct {
	// The private SSH key, in OpenSSH format and without a passphrase; must be stored encrypted.
	Identity string `json:"identity,omitempty"`
	// The public keys of the server, as `ssh-keyscan` prints them; required with `identity`.
	KnownHosts string `json:"knownHosts,omitempty"`
	// The user; with a token, what the server expects, often `git`.
	Username string `json:"username,omitempty"`
	// The user's password, or a token; must be stored encrypted.
	Password string `json:"password,omitempty"`
	// The certificate authority of an https server, as PEM. Default: the public ones.
	CA string `json:"ca,omitempty"`
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
