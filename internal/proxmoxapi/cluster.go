package proxmoxapi

import (
	"context"
	"errors"
)

// rootAuthority is the file of a Proxmox cluster's certificate authority.
const rootAuthority = "pve-root-ca.pem"

// Cluster tells the Proxmox cluster that answers from any other: the SHA-256 fingerprint of its certificate authority,
// which is made with the cluster (or the host that is alone), comes to every host that joins, and outlives hosts,
// addresses and their certificates. Whoever logs in may ask for it (PVE::API2::Certificates, user "all"), and
// "localhost" is the host that answers, whatever its name.
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
