// Package controlplane runs a machine's part of a cluster's etcd and Kubernetes for real, as processes of labkube on
// the machine's own address. What they are started with follows from the machine configuration, as Talos does it.
package controlplane

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// Host is the machine that parts run on.
type Host struct {
	// Binary is labkube.
	Binary string
	// Dir is the machine's own folder: what its parts keep, their certificates and logs. Only its owner reads it.
	Dir string
	// Name is the node's name.
	Name string
	// Address is the node's, Etcd that of its etcd member.
	Address, Etcd netip.Addr
	// APIServerSubject is who the certificate of its API server is for.
	APIServerSubject certificates.Subject
	Config           config.Provider
	// Release is that of the machine's Talos.
	Release talos.Release
}

// LogFile is where a part's output goes.
func (h Host) LogFile(part string) string { return filepath.Join(h.Dir, "log", part+".log") }

func (h Host) path(name string) string { return filepath.Join(h.Dir, filepath.FromSlash(name)) }

// write stores a file that only its owner reads.
func (h Host) write(name string, content []byte) error {
	path := h.path(name)

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("unable to make the machine's folder: %w", err)
	}

	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("unable to write to the machine's folder: %w", err)
	}

	return nil
}

// Tag is the version that an image reference states.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")

	return image[strings.LastIndex(image, ":")+1:]
}

// EtcdVersion is the version of etcd that an image reference states, with its v: the tags of newer images have none.
func EtcdVersion(image string) string { return "v" + strings.TrimPrefix(Tag(image), "v") }

func hostPort(a netip.Addr, port int) string {
	return netip.AddrPortFrom(a, uint16(port)).String() //nolint:gosec // a port
}

func peerURL(a netip.Addr) string   { return "https://" + hostPort(a, etcdPeerPort) }
func clientURL(a netip.Addr) string { return "https://" + hostPort(a, etcdClientPort) }

// arguments are flags by name.
type arguments map[string]string

// merge lists the arguments with the configuration's own, each as often as it has values there: some are added to what
// is there, some replace it, and some are refused, as by Talos.
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

func itoa(n int) string { return strconv.Itoa(n) }
