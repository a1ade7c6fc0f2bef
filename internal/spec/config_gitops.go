package spec

// GitOpsConfig says what Flux reconciles a cluster from. The program installs the operator of Flux, the instance, the
// credentials and the facts; everything else is in the repository.
type GitOpsConfig struct {
	// What is reconciled: `git` = a repository, `oci` = an artifact of a container registry.
	Kind string `json:"kind,omitempty" jsonschema:"default=git,enum=git,enum=oci"`
	// Where it is: `ssh://git@host/path` or `https://host/path`; of an artifact `oci://host/path`, without a tag.
	URL string `json:"url" jsonschema:"required,example=ssh://git@github.com/example/fleet"`
	// The branch or tag in full; of an artifact its tag. Default: `refs/heads/main`, of an artifact `latest`.
	Ref string `json:"ref,omitempty" jsonschema:"example=refs/heads/main"`
	// The folder that is reconciled. Default: `clusters/<cluster>`.
	Path string `json:"path,omitempty" jsonschema:"example=clusters/prod"`
	// How often it is asked for something new, such as `1m` or `30s`.
	Interval string `json:"interval,omitempty" jsonschema:"default=1m"`
	// What Flux is let in with. Without it the source is public.
	PullSecret PullSecretConfig `json:"pullSecret,omitempty"`
	// The secret keys of age (`AGE-SECRET-KEY-…`, one per line) that SOPS files of the repository are decrypted with. It
	// has to be stored encrypted. Default: none.
	Age string `json:"age,omitempty"`
	// Whose signatures what is reconciled has to have. Default: anybody who can write to the source is believed.
	Verify VerifyConfig `json:"verify,omitempty"`
	// Nobody shares the cluster: objects of Flux in any namespace may use sources of other namespaces, remote bases, and
	// all rights of Flux. Without it only those in `flux-system` act with all rights, and others with those of a
	// ServiceAccount that they name.
	SingleTenant bool `json:"singleTenant,omitempty"`
	// The version of Flux, without v: one that the operator has in it.
	Version string `json:"version,omitempty" jsonschema:"default=2.9.5"`
	// The chart of Flux' operator.
	Operator OperatorChartConfig `json:"operator,omitempty"`
	// How many seconds `up` waits for the operator, the controllers and the first reconciliation.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty" jsonschema:"default=900,minimum=30,maximum=7200"`
}

// VerifyConfig says whose signatures what Flux reconciles has to have: keys, or with `kind: oci` the identity of a
// certificate.
type VerifyConfig struct {
	// Public keys, one of which has signed the newest commit (PGP in armour, or SSH as `ssh-ed25519 …`) or the artifact
	// (cosign's, PEM).
	Keys []string `json:"keys,omitempty"`
	// The issuer of the identity that cosign signed an artifact with and without a key, as a regular expression.
	Issuer string `json:"issuer,omitempty" jsonschema:"example=^https://token\\.actions\\.githubusercontent\\.com$"`
	// That identity's subject, as a regular expression; needed with `issuer`.
	Subject string `json:"subject,omitempty" jsonschema:"example=^https://github\\.com/example/fleet/.*$"`
}

// PullSecretConfig is what Flux is let in with: a key for `ssh://`, a user for `https://` and `oci://`.
type PullSecretConfig struct {
	// The private SSH key, in OpenSSH's form and without a passphrase. It has to be stored encrypted.
	Identity string `json:"identity,omitempty"`
	// The public keys of the server, as `ssh-keyscan` prints them; needed with `identity`.
	KnownHosts string `json:"knownHosts,omitempty"`
	// The user; with a token whatever its server wants, often `git`.
	Username string `json:"username,omitempty"`
	// The user's password, or a token. It has to be stored encrypted.
	Password string `json:"password,omitempty"`
	// The authority that signed an https server's certificate, as PEM. Default: the public ones.
	CA string `json:"ca,omitempty"`
}

// OperatorChartConfig is the chart of Flux' operator.
type OperatorChartConfig struct {
	// Where the chart is: `oci://…`, `https://….tgz`, or a file, which `~/` may begin.
	Chart string `json:"chart,omitempty" jsonschema:"default=oci://ghcr.io/controlplaneio-fluxcd/charts/flux-operator"`
	// The chart's version.
	Version string `json:"version,omitempty" jsonschema:"default=0.59.0"`
	// The digest (`sha256:…`) of the archive or, in a registry, of its manifest. Default: any.
	Digest string `json:"digest,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
}
