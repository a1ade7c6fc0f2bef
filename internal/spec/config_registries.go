package spec

// Registries are how machines pull images, by registry.
type Registries struct {
	// Mirrors by the registry that they stand in for, such as `docker.io`; `*` = every registry without one of its own.
	Mirrors map[string]RegistryMirror `json:"mirrors,omitempty" pulumi:"mirrors,optional"`
	// Users by the host of a registry or mirror, with its port if it has one.
	Auth map[string]RegistryAuth `json:"auth,omitempty" pulumi:"auth,optional"`
	// How the certificates of a registry or mirror are verified, by its host, with its port if it has one. Default: with
	// the public authorities.
	TLS map[string]RegistryTLS `json:"tls,omitempty" pulumi:"tls,optional"`
}

// RegistryMirror are the mirrors of a registry.
type RegistryMirror struct {
	// The addresses of the mirrors, in the order in which they are tried. `http://` is accepted only on 127.0.0.0/8.
	Endpoints []string `json:"endpoints" jsonschema:"required,minItems=1,example=https://mirror.example.org" pulumi:"endpoints"`
	// Never pull from the registry itself. By default it is tried last.
	SkipFallback bool `json:"skipFallback,omitempty" jsonschema:"default=false" pulumi:"skipFallback,optional"`
	// Use the addresses' paths as they are, without `/v2` at their end.
	OverridePath bool `json:"overridePath,omitempty" jsonschema:"default=false" pulumi:"overridePath,optional"`
}

// RegistryAuth is a user of a registry.
type RegistryAuth struct {
	// The user.
	Username string `json:"username" jsonschema:"required,example=robot" pulumi:"username"`
	// The user's password, or a token; must be stored encrypted.
	Password string `json:"password" jsonschema:"required" pulumi:"password" provider:"secret"`
}

// RegistryTLS is how the certificate of a registry is verified.
type RegistryTLS struct {
	// The certificate authority, as PEM.
	CA string `json:"ca,omitempty" pulumi:"ca,optional"`
	// Accept any certificate.
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty" jsonschema:"default=false" pulumi:"insecureSkipVerify,optional"`
}
