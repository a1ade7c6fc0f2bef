package talos

// Registries are how images are pulled.
type Registries struct {
	Mirrors []RegistryMirror
	Auth    []RegistryAuth
	TLS     []RegistryTLS
}

// RegistryMirror are the mirrors of a registry; * = of every one without mirrors of its own.
type RegistryMirror struct {
	Registry  string
	Endpoints []string
	// SkipFallback never uses the registry itself, OverridePath the endpoints' paths as they are.
	SkipFallback, OverridePath bool
}

// RegistryAuth is the user of a registry; the password is secret.
type RegistryAuth struct{ Host, Username, Password string }

// RegistryTLS verifies a registry's certificate with an authority (PEM), or not at all.
type RegistryTLS struct {
	Host, CA           string
	InsecureSkipVerify bool
}

func (r Registries) empty() bool { return len(r.Mirrors)+len(r.Auth)+len(r.TLS) == 0 }

// documents returns the documents of the registries, which every supported release has.
func (r Registries) documents() (docs []object) {
	for _, mirror := range r.Mirrors {
		endpoints := make([]object, 0, len(mirror.Endpoints))

		for _, url := range mirror.Endpoints {
			endpoint := object{"url": url}
			if mirror.OverridePath {
				endpoint["overridePath"] = true
			}

			endpoints = append(endpoints, endpoint)
		}

		fields := object{"name": mirror.Registry, "endpoints": endpoints}
		if mirror.SkipFallback {
			fields["skipFallback"] = true
		}

		docs = append(docs, document("RegistryMirrorConfig", fields))
	}

	for _, auth := range r.Auth {
		docs = append(docs, document("RegistryAuthConfig", object{
			"name": auth.Host, "username": auth.Username, "password": auth.Password,
		}))
	}

	for _, tls := range r.TLS {
		fields := object{"name": tls.Host}
		if tls.CA != "" {
			fields["ca"] = tls.CA
		}

		if tls.InsecureSkipVerify {
			fields["insecureSkipVerify"] = true
		}

		docs = append(docs, document("RegistryTLSConfig", fields))
	}

	return docs
}
