package proxmoxapi

import (
	"context"
	"errors"
)

// rootAuthority is the file of a Proxmox cluster's certificate authority.
const rootAuthority = "pve-root-ca.pem"

// Cluster returns what identifies the Proxmox cluster: the SHA-256 fingerprint of its certificate authority, which is
// created with the cluster (or single host), copied to every host that joins, and outlives hosts, addresses and their
// certificates. Every user may read it (PVE::API2::Certificates, user "all"), and "localhost" is the host that answers.
func (g *Machines) Cluster(ctx context.Context) (string, error) {
	var certificates []struct{ Filename, Fingerprint string }
	if err := g.Get(ctx, "/nodes/localhost/certificates/info", &certificates); err != nil {
		return "", err
	}

	for _, c := range certificates {
		if c.Filename == rootAuthority && c.Fingerprint != "" {
			return c.Fingerprint, nil
		}
	}

	return "", errors.New("it does not say what its certificate authority (" + rootAuthority + ") is")
}
