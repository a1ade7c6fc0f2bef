// Package controlplane runs a machine's part of a cluster's real etcd and Kubernetes, as processes of labkube on the
// machine's own address. Like on Talos, their arguments derive from the machine configuration.
package controlplane

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/certificates"
)

// Ports of etcd.
const (
	etcdClientPort = 2379
	etcdPeerPort   = 2380
)

// Host is the machine that components run on.
type Host struct {
	// Binary is the path of labkube.
	Binary string
	// Dir is the machine's own folder, with the data, certificates and logs of its components. Only its owner can read it.
	Dir string
	// Name is the node's name.
	Name string
	// Address is the node's address, Etcd that of its etcd member.
	Address, Etcd netip.Addr
	// APIServerSubject is the subject of its API server's certificate.
	APIServerSubject certificates.Subject
	Config           config.Provider
	// Release is the release of the machine's Talos.
	Release talos.Release
}

// LogFile returns the path of a component's log.
func (h Host) LogFile(component string) string { return filepath.Join(h.Dir, "log", component+".log") }

func (h Host) path(name string) string { return filepath.Join(h.Dir, filepath.FromSlash(name)) }

// write writes a file that only its owner can read.
func (h Host) write(name string, content []byte) error {
	path := h.path(name)

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("unable to create the machine's folder: %w", err)
	}

	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("unable to write to the machine's folder: %w", err)
	}

	return nil
}

// Tag returns the tag of an image reference.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")

	return image[strings.LastIndex(image, ":")+1:]
}

// EtcdVersion returns the version of etcd of an image reference, with its v: tags of newer images have none.
func EtcdVersion(image string) string { return "v" + strings.TrimPrefix(Tag(image), "v") }

func hostPort(a netip.Addr, port int) string {
	return netip.AddrPortFrom(a, uint16(port)).String() //nolint:gosec // a port
}

func peerURL(a netip.Addr) string   { return "https://" + hostPort(a, etcdPeerPort) }
func clientURL(a netip.Addr) string { return "https://" + hostPort(a, etcdClientPort) }

// arguments maps flags to their values.
type arguments map[string]string

// merge returns the flags with those of the configuration, which may repeat. Like in Talos, these are appended to the
// value (additive), refused (denied), or replace the value.
func (a arguments) merge(extra map[string][]string, additive, denied []string) ([]string, error) {
	all := map[string][]string{}
	for name, value := range a {
		all[name] = []string{value}
	}

	for _, name := range slices.Sorted(maps.Keys(extra)) {
		switch {
		case slices.Contains(denied, name):
			return nil, fmt.Errorf("extra arg %q is not allowed", name)
		case slices.Contains(additive, name):
			all[name] = []string{strings.Join(slices.Concat(all[name], extra[name]), ",")}
		default:
			all[name] = extra[name]
		}
	}

	list := make([]string, 0, len(all))

	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, value := range all[name] {
			list = append(list, "--"+name+"="+value)
		}
	}

	return list, nil
}
