// Package images lists the images whose program the lab has: a binary beside labkube, which runs as a process of this
// computer where a node would run a container.
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

// Image is an image whose program the lab has.
type Image struct {
	// Name is the name of the image without its repository, and of the binary.
	Name string
	// Path is the path of the binary.
	Path    string
	program program
}

// Sandbox is what a process has instead of a container's network and file system.
type Sandbox struct {
	// Dir is the pod's folder, which contains its volumes.
	Dir string
	// Kubeconfig is a file with the rights of the pod's service account.
	Kubeconfig string
	// Address is where the process may listen; Ports maps ports of the container to ports of that address.
	Address netip.Addr
	Ports   map[int32]uint16
}

// program is how a program is configured for its sandbox.
type program struct {
	// listens maps ports of the container to the flags that set their addresses.
	listens map[int32]string
	// flags and env are added to those of the container.
	flags func(i Image, p Sandbox) []string
	env   []string
}

// noEvents disables the events of Flux' controllers: the lab has no receiver.
const noEvents = "--events-addr="

// noLeaderElection disables leader election of controllers, which finds its namespace only in a pod's file system.
// There is only one replica.
const noLeaderElection = "--enable-leader-election=false"

var programs = map[string]program{
	"source-controller": {
		listens: map[int32]string{9090: "--storage-addr", 8080: "--metrics-addr", 9440: "--health-addr"},
		flags: func(_ Image, p Sandbox) []string {
			return []string{
				noLeaderElection, noEvents, "--storage-path=" + p.Folder("/data"), "--storage-adv-addr=" + p.HostPort(9090),
			}
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
		// Its web server would listen on every address of this computer. It runs only with Go's FIPS cryptography, with which
		// its image is built.
		env: []string{"WEB_SERVER_PORT=0", "GODEBUG=fips140=on"},
	},
	"operator-generic": {
		listens: map[int32]string{9234: "--operator-api-serve-addr", 9963: "--operator-prometheus-serve-addr"},
		flags: func(_ Image, p Sandbox) []string {
			return []string{
				"--config-dir=" + p.Folder("/tmp/cilium/config-map"), "--k8s-kubeconfig-path=" + p.Kubeconfig,
				"--enable-gops=false", // all pods would listen on the same address
				// The lab's agents create no endpoints: without one, the operator would restart CoreDNS' pods repeatedly.
				"--unmanaged-pod-watcher-interval=0",
			}
		},
	},
}

// Find returns the program of an image, nil if the lab has none. It fails if the program was not built, or the image
// has another version. Patch versions are ignored.
func Find(folder, reference string) (*Image, error) {
	name, tag := Split(reference)

	p, known := programs[name]
	if !known {
		return nil, nil //nolint:nilnil // most images have no program
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
		return nil, fmt.Errorf("the lab has %s %s only, not %s: plan a version that has it (docs/dev/lab.md)", name, built, tag)
	}

	return i, nil
}

// Split returns an image's name without its repository, and its tag.
func Split(reference string) (name, tag string) {
	reference, _, _ = strings.Cut(reference, "@")
	name, tag, _ = strings.Cut(reference[strings.LastIndex(reference, "/")+1:], ":")

	return name, tag
}

// Listens returns the sorted ports of the container at which the program listens.
func (i Image) Listens() []int32 { return slices.Sorted(maps.Keys(i.program.listens)) }

// Command returns the command and environment of the process for those of its container.
func (i Image) Command(args, env []string, p Sandbox) (argv, environment []string) {
	argv = append([]string{i.Path}, args...)

	for _, port := range i.Listens() {
		argv = append(argv, i.program.listens[port]+"="+p.HostPort(port))
	}

	temporary := p.Folder("/tmp")

	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if value == "" {
			continue // unknown to the lab
		}

		if value == "/tmp" || strings.HasPrefix(value, "/tmp/") {
			value = temporary + value[len("/tmp"):]
		}

		environment = append(environment, name+"="+value)
	}

	// KUBECONFIG is a list separated by colons, which names of machines' folders contain. The process runs in the file's
	// folder, so its base name suffices.
	environment = append(environment, "HOME="+temporary, "TMPDIR="+temporary, "KUBECONFIG="+filepath.Base(p.Kubeconfig))

	return append(argv, i.program.flags(i, p)...), append(environment, i.program.env...)
}

// HostPort returns the address for a port of the container.
func (p Sandbox) HostPort(port int32) string {
	return netip.AddrPortFrom(p.Address, p.Ports[port]).String()
}

// Folder returns the path for a folder of the container.
func (p Sandbox) Folder(path string) string {
	return filepath.Join(p.Dir, "volumes", filepath.FromSlash(path))
}

// Folders returns the folders that programs write to.
func (p Sandbox) Folders() []string { return []string{p.Folder("/data"), p.Folder("/tmp")} }
