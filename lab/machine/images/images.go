// Package images knows the images whose program the lab has: a binary beside labkube, which runs as a process of the
// lab's computer where a node would run a container.
package images

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// Image is one whose program the lab has.
type Image struct {
	// Name is that of the image without its repository, and of the binary.
	Name string
	// Path is the binary's.
	Path    string
	program program
}

// Sandbox is what a process has where its container would have its own network and file system.
type Sandbox struct {
	// Dir is the pod's folder: its volumes are in there.
	Dir string
	// Kubeconfig is a file with the rights of the pod's service account.
	Kubeconfig string
	// Address is where the process may listen, at Ports: by the port of the container.
	Address netip.Addr
	Ports   map[int32]uint16
}

// program is how one is told where it is.
type program struct {
	// listens are flags of addresses by the container's port.
	listens map[int32]string
	// flags and env are given on top of the container's own.
	flags func(i Image, p Sandbox) []string
	env   []string
}

// noEvents is where the controllers of Flux send what happens: no program of the lab's receives it.
const noEvents = "--events-addr="

// noLeaderElection leaves leader election of controllers out, which finds its namespace in a pod's file system only: there is one
// replica.
const noLeaderElection = "--enable-leader-election=false"

var programs = map[string]program{
	"source-controller": {
		listens: map[int32]string{9090: "--storage-addr", 8080: "--metrics-addr", 9440: "--health-addr"},
		flags: func(_ Image, p Sandbox) []string {
			return []string{noLeaderElection, noEvents, "--storage-path=" + p.Folder("/data"), "--storage-adv-addr=" + p.HostPort(9090)}
		},
	},
	"kustomize-controller": {
		listens: map[int32]string{8080: "--metrics-addr", 9440: "--health-addr"},
		flags:   func(Image, Sandbox) []string { return []string{noLeaderElection, noEvents} },
	},
	"helm-controller": {
		listens: map[int32]string{8080: "--metrics-addr", 9440: "--health-addr"},
		flags:   func(Image, Sandbox) []string { return []string{noLeaderElection, noEvents} },
	},
	"flux-operator": {
		listens: map[int32]string{8080: "--metrics-addr", 8081: "--health-addr"},
		flags: func(i Image, _ Sandbox) []string {
			return []string{noLeaderElection, "--storage-path=" + i.Path + "-data"}
		},
		// Its pages would be served at every address of the computer; and it runs with Go's FIPS cryptography only, which its
		// image is built with.
		env: []string{"WEB_SERVER_PORT=0", "GODEBUG=fips140=on"},
	},
	"operator-generic": {
		listens: map[int32]string{9234: "--operator-api-serve-addr", 9963: "--operator-prometheus-serve-addr"},
		flags: func(_ Image, p Sandbox) []string {
			return []string{
				"--config-dir=" + p.Folder("/tmp/cilium/config-map"), "--k8s-kubeconfig-path=" + p.Kubeconfig,
				"--enable-gops=false", // its address would be the same in all pods
				// The lab's agents note no endpoints: without one, a pod of CoreDNS would be started again and again.
				"--unmanaged-pod-watcher-interval=0",
			}
		},
	},
}

// Find returns the program of an image, nil for an image whose program the lab does not have. An error says why it
// cannot run: it was not built, or the image is of another version. Patch versions count as the same.
func Find(folder, reference string) (*Image, error) {
	name, tag := split(reference)

	p, known := programs[name]
	if !known {
		return nil, nil //nolint:nilnil // most images are none of these
	}

	i := &Image{Name: name, Path: filepath.Join(folder, name), program: p}

	info, err := buildinfo.ReadFile(i.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the lab has no %s: make build-%[1]s builds it (some minutes, once)", name)
	}

	if err != nil {
		return nil, fmt.Errorf("unable to read the version of %s: %w", i.Path, err)
	}

	if built := info.Main.Version; semver.MajorMinor(built) != semver.MajorMinor(tag) {
		return nil, fmt.Errorf("the lab has %s %s only, not %s: plan a version that has it (docs/lab.md)", name, built, tag)
	}

	return i, nil
}

// split returns an image's name without its repository, and its tag.
func split(reference string) (name, tag string) {
	reference, _, _ = strings.Cut(reference, "@")
	name, tag, _ = strings.Cut(reference[strings.LastIndex(reference, "/")+1:], ":")

	return name, tag
}

// Listens are the ports of the container at which the program listens, in order.
func (i Image) Listens() []int32 { return slices.Sorted(maps.Keys(i.program.listens)) }

// Command is what the process is started with, of what its container would be.
func (i Image) Command(args, env []string, p Sandbox) (argv, environment []string) {
	argv = append([]string{i.Path}, args...)

	for _, port := range i.Listens() {
		argv = append(argv, i.program.listens[port]+"="+p.HostPort(port))
	}

	temporary := p.Folder("/tmp")

	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if value == "" {
			continue // what the lab cannot tell
		}

		if value == "/tmp" || strings.HasPrefix(value, "/tmp/") {
			value = temporary + value[len("/tmp"):]
		}

		environment = append(environment, name+"="+value)
	}

	// KUBECONFIG is a list with colons between its files, and the names of machines' folders have such: the process runs
	// in the file's folder.
	environment = append(environment, "HOME="+temporary, "TMPDIR="+temporary, "KUBECONFIG="+filepath.Base(p.Kubeconfig))

	return append(argv, i.program.flags(i, p)...), append(environment, i.program.env...)
}

// HostPort is the address that stands for a port of the container.
func (p Sandbox) HostPort(port int32) string {
	return netip.AddrPortFrom(p.Address, p.Ports[port]).String()
}

// Folder is what stands for a folder of the container.
func (p Sandbox) Folder(path string) string {
	return filepath.Join(p.Dir, "volumes", filepath.FromSlash(path))
}

// Folders are those that the program writes to.
func (p Sandbox) Folders() []string { return []string{p.Folder("/data"), p.Folder("/tmp")} }
