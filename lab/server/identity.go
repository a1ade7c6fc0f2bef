package server

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/proxmox"
)

// identity is what a lab keeps between runs besides its data centre: credentials, keys and ports. Only its owner can
// read the file.
type identity struct {
	RootPassword string            `json:"rootPassword"`
	TokenSecret  string            `json:"tokenSecret"`
	ClientKey    string            `json:"clientKey"` // OpenSSH PEM
	HostKeys     map[string]string `json:"hostKeys"`  // by host name, OpenSSH PEM
	CA           string            `json:"ca"`        // of the hosts' certificates, PEM
	CAKey        string            `json:"caKey"`     // PEM
	// Hosts are the names of the hosts in the order of their addresses.
	Hosts []string `json:"hosts"`
	// Kubernetes is KubernetesModel or KubernetesReal.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Ports by server ("pve1/api", "pve1/ssh", "factory", "charts"), so that a restarted lab has the same addresses.
	Ports map[string]int `json:"ports"`

	path string
}

func loadIdentity(dir string) (*identity, error) {
	id := &identity{path: filepath.Join(dir, "identity.json"), HostKeys: map[string]string{}, Ports: map[string]int{}}

	b, err := os.ReadFile(id.path)
	if err == nil {
		if err := json.Unmarshal(b, id); err != nil {
			return nil, fmt.Errorf(
				"unable to read the lab's identity %s: %w; remove the lab's folder to start over", id.path, err,
			)
		}

		return id, nil
	}

	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("unable to read the lab's identity: %w", err)
	}

	id.RootPassword, id.TokenSecret = rand.Text(), uuid.NewString()

	if id.ClientKey, err = newKey(); err != nil {
		return nil, err
	}

	return id, id.save()
}

func (id *identity) save() error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("unable to write the lab's identity: %w", err)
	}

	if err := os.WriteFile(id.path, b, 0o600); err != nil {
		return fmt.Errorf("unable to write the lab's identity: %w", err)
	}

	return nil
}

// caFile is the certificate of the lab's CA in the lab's folder, for clients.
const caFile = "ca.pem"

// authority returns the lab's CA. Like a Proxmox cluster's, it is created once and signs the certificates of all hosts.
func (id *identity) authority() (*tls.Certificate, error) {
	if id.CA == "" {
		certificate, key, err := proxmox.NewCA()
		if err != nil {
			return nil, err
		}

		id.CA, id.CAKey = string(certificate), string(key)
	}

	ca, err := tls.X509KeyPair([]byte(id.CA), []byte(id.CAKey))
	if err != nil {
		return nil, fmt.Errorf("unable to read the lab's CA in %s: %w; remove the lab's folder to start over", id.path, err)
	}

	if err := os.WriteFile(id.caPath(), []byte(id.CA), 0o600); err != nil {
		return nil, fmt.Errorf("unable to write the certificate of the lab's CA: %w", err)
	}

	return &ca, nil
}

func (id *identity) caPath() string { return filepath.Join(filepath.Dir(id.path), caFile) }

// addHosts returns the names of the lab's hosts: the existing ones, then those that the options add.
func (id *identity) addHosts(o Options) []string {
	var names []string

	for i := range o.Hosts {
		names = append(names, fmt.Sprintf("pve%d", i+1))
	}

	for _, name := range append(names, o.HostNames...) {
		if !slices.Contains(id.Hosts, name) {
			id.Hosts = append(id.Hosts, name)
		}
	}

	return id.Hosts
}

func (id *identity) hostKey(host string) (ssh.Signer, error) {
	if id.HostKeys[host] == "" {
		key, err := newKey()
		if err != nil {
			return nil, err
		}

		id.HostKeys[host] = key
	}

	signer, err := ssh.ParsePrivateKey([]byte(id.HostKeys[host]))
	if err != nil {
		return nil, fmt.Errorf("unable to read the host key of %s: %w", host, err)
	}

	return signer, nil
}

func (id *identity) clientPublicKey() (ssh.PublicKey, error) {
	signer, err := ssh.ParsePrivateKey([]byte(id.ClientKey))
	if err != nil {
		return nil, fmt.Errorf("unable to read the lab's client key: %w", err)
	}

	return signer.PublicKey(), nil
}

func newKey() (string, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("unable to generate an SSH key: %w", err)
	}

	block, err := ssh.MarshalPrivateKey(private, "lab")
	if err != nil {
		return "", fmt.Errorf("unable to generate an SSH key: %w", err)
	}

	return string(pem.EncodeToMemory(block)), nil
}
