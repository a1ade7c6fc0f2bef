package spec

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/talos"
)

// registryFormat is the first part of an image's name, or the host of an endpoint.
var registryFormat = format{
	regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?$`),
	"is not the host of a registry; write it without https:// and path, such as registry.example.org:5000",
}

// Check reports problems below a path.
func (r *Registries) Check(at string, found *problem.List) {
	p := &planner{problems: found}
	p.checkRegistries(at, r)
}

// ForTalos returns the registries of machine configurations; none for nil.
func (r *Registries) ForTalos() (registries talos.Registries) {
	if r == nil {
		return registries
	}

	for _, name := range slices.Sorted(maps.Keys(r.Mirrors)) {
		registries.Mirrors = append(registries.Mirrors, talos.RegistryMirror{
			Registry: name, Endpoints: r.Mirrors[name].Endpoints, SkipFallback: r.Mirrors[name].SkipFallback,
			OverridePath: r.Mirrors[name].OverridePath,
		})
	}

	for _, host := range slices.Sorted(maps.Keys(r.Auth)) {
		registries.Auth = append(registries.Auth, talos.RegistryAuth{
			Host: host, Username: r.Auth[host].Username, Password: r.Auth[host].Password,
		})
	}

	for _, host := range slices.Sorted(maps.Keys(r.TLS)) {
		registries.TLS = append(registries.TLS, talos.RegistryTLS{
			Host: host, CA: r.TLS[host].CA, InsecureSkipVerify: r.TLS[host].InsecureSkipVerify,
		})
	}

	return registries
}

// planRegistries plans the registries of a cluster; nil = none.
func (p *planner) planRegistries(at string, r *Registries) *Registries {
	if r == nil {
		return nil
	}

	for _, host := range slices.Sorted(maps.Keys(r.Auth)) {
		p.checkEncrypted(joinPath(at+".auth", host)+".password", r.Auth[host].Password)
	}

	for _, host := range slices.Sorted(maps.Keys(r.TLS)) {
		if r.TLS[host].InsecureSkipVerify {
			p.warn("%s.insecureSkipVerify: anybody in the network path can replace images, and read the password; set ca",
				joinPath(at+".tls", host))
		}
	}

	p.checkRegistries(at, r)

	return r
}

func (p *planner) checkRegistries(at string, r *Registries) {
	for _, name := range slices.Sorted(maps.Keys(r.Mirrors)) {
		path := joinPath(at+".mirrors", name)
		if name != "*" {
			p.checkRegistry(path, name)
		}

		if len(r.Mirrors[name].Endpoints) == 0 {
			p.addMissing(path+".endpoints", "is empty; add at least 1 entry")
		}

		for i, endpoint := range r.Mirrors[name].Endpoints {
			p.checkMirror(fmt.Sprintf("%s.endpoints[%d]", path, i), endpoint)
		}
	}

	for _, host := range slices.Sorted(maps.Keys(r.Auth)) {
		path := joinPath(at+".auth", host)
		p.checkRegistry(path, host)

		for _, text := range []struct{ key, value string }{
			{"username", r.Auth[host].Username}, {"password", r.Auth[host].Password},
		} {
			if text.value == "" {
				p.addMissing(path+"."+text.key, "is missing; set it, or remove the user")
			}
		}
	}

	for _, host := range slices.Sorted(maps.Keys(r.TLS)) {
		path := joinPath(at+".tls", host)
		p.checkRegistry(path, host)
		p.checkCertificate(path+".ca", r.TLS[host].CA, "the authority of the registry's certificate")

		if (r.TLS[host].CA != "") == r.TLS[host].InsecureSkipVerify {
			p.problems.Add(path, nil, "needs either ca or insecureSkipVerify: true; set ca")
		}
	}
}

func (p *planner) checkRegistry(at, host string) {
	if !registryFormat.pattern.MatchString(host) {
		p.problems.Add(at, nil, "%s", registryFormat.remedy)
	}
}

// checkMirror accepts encrypted connections, and others that do not leave the machine.
func (p *planner) checkMirror(at, text string) {
	mirror, err := url.Parse(text)

	switch {
	case err != nil || mirror.Scheme != "https" && mirror.Scheme != "http" || mirror.Host == "" || mirror.RawQuery != "":
		p.problems.Add(at, nil, "is not the address of a mirror; write it as https://mirror.example.org")
	case mirror.User != nil:
		p.problems.Add(at, nil, "has a user in it; remove it, and set username and password below auth")
	case !isEncrypted(mirror):
		p.problems.Add(at, text, "is not encrypted, so anybody in the network path could replace images; use https://, with "+
			"the mirror's authority below tls")
	}
}
