package talos

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Roles of machines, as in machine.type.
const (
	RoleControlPlane = "controlplane"
	RoleWorker       = "worker"
)

// Release is one supported Talos minor version and the Kubernetes versions it runs.
type Release struct {
	// Talos is the minor version with its v; also the version contract of configurations generated for it.
	Talos string
	// OldestKubernetes and NewestKubernetes are minor versions, both included.
	OldestKubernetes, NewestKubernetes string
	// DefaultKubernetes is a full version: the one the minor's first release shipped with, so that a newer Talos patch
	// never changes Kubernetes.
	DefaultKubernetes string
}

// Releases returns the supported versions, oldest first.
func Releases() []Release {
	return []Release{
		{Talos: "v1.11", OldestKubernetes: "v1.29", NewestKubernetes: "v1.34", DefaultKubernetes: "v1.34.0"},
		{Talos: "v1.12", OldestKubernetes: "v1.30", NewestKubernetes: "v1.35", DefaultKubernetes: "v1.35.0"},
		{Talos: "v1.13", OldestKubernetes: "v1.31", NewestKubernetes: "v1.36", DefaultKubernetes: "v1.36.0"},
	}
}

// Check says whether a Talos version is supported and runs a Kubernetes version; both are full versions with their v.
// The error says what to do.
func Check(talos, kubernetes string) error {
	talosVersion, err := parseVersion("Talos", talos)
	if err != nil {
		return err
	}

	kubernetesVersion, err := parseVersion("Kubernetes", kubernetes)
	if err != nil {
		return err
	}

	release, ok := find(talosVersion)
	if !ok {
		return unsupported(talos)
	}

	if kubernetesVersion.within(release) {
		return nil
	}

	return fmt.Errorf("version %s of Kubernetes does not run on Talos %s: choose a version from %s to %s%s",
		kubernetes, talos, release.OldestKubernetes, release.NewestKubernetes, runnersOf(kubernetesVersion))
}

// library is the release whose library upgrades Kubernetes: that of cmd/kubeupgrade's go.mod.
const library = "v1.12"

// BeyondLibrary says why this program cannot upgrade a cluster to a version of Kubernetes, on nodes of a version of
// Talos; it is empty where it can, and where a version is not one in full.
func BeyondLibrary(talos, kubernetes string) string {
	nodes, unknown := parseVersion("Talos", talos)
	wanted, wrong := parseVersion("Kubernetes", kubernetes)
	release, _ := find(minorVersion(library))

	if unknown != nil || wrong != nil ||
		!minorVersion(release.Talos).before(nodes) && !minorVersion(release.NewestKubernetes).before(wanted) {
		return ""
	}

	return fmt.Sprintf("is beyond the library that upgrades Kubernetes, of Talos %s: it knows Kubernetes up to %s, on nodes up "+
		"to Talos %[1]s, so that the run fails there and changes nothing; `talosctl upgrade-k8s --to %[3]s` of a newer Talos, run "+
		"before, leaves nothing to do", release.Talos, release.NewestKubernetes, kubernetes[1:])
}

// CheckTalos says whether a full Talos version is supported. The error says what to do.
func CheckTalos(talos string) error {
	version, err := parseVersion("Talos", talos)
	if err != nil {
		return err
	}

	if _, ok := find(version); !ok {
		return unsupported(talos)
	}

	return nil
}

func unsupported(talos string) error {
	all := Releases()

	return fmt.Errorf(
		"version %s of Talos is not supported: choose a version from %s to %s", talos, all[0].Talos, all[len(all)-1].Talos,
	)
}

// DefaultKubernetes returns the Kubernetes version for a supported Talos version.
func DefaultKubernetes(talos string) (string, bool) {
	version, err := parseVersion("Talos", talos)
	if err != nil {
		return "", false
	}

	release, ok := find(version)

	return release.DefaultKubernetes, ok
}

// Contract returns the version contract of a Talos version: Contract("v1.12.6") is "v1.12". Configurations and secrets
// stay with the contract they were first generated for, whatever is installed later.
func Contract(version string) (string, error) {
	parsed, err := parseVersion("Talos", version)
	if err != nil {
		return "", err
	}

	return parsed.minorString(), nil
}

// Minimum returns the smallest machine Talos runs on in a role, after Talos' system requirements.
func Minimum(role string) (cores, memoryMiB, diskGiB int) {
	if role == RoleControlPlane {
		return 2, 2048, 10
	}

	return 1, 1024, 10
}

type version struct{ major, minor int }

var versionForm = regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})\.\d{1,4}(-[0-9A-Za-z.-]+)?$`)

func parseVersion(of, text string) (version, error) {
	match := versionForm.FindStringSubmatch(text)
	if match == nil {
		return version{}, fmt.Errorf("%q is not a version of %s: write it in full, such as %s", text, of, exampleVersion(of))
	}

	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])

	return version{major, minor}, nil
}

func exampleVersion(of string) string {
	all := Releases()
	if of == "Kubernetes" {
		return all[len(all)-1].DefaultKubernetes
	}

	return all[len(all)-1].Talos + ".0"
}

func (v version) minorString() string { return fmt.Sprintf("v%d.%d", v.major, v.minor) }

func (v version) before(other version) bool {
	return v.major < other.major || v.major == other.major && v.minor < other.minor
}

func (v version) within(r Release) bool {
	return !v.before(minorVersion(r.OldestKubernetes)) && !minorVersion(r.NewestKubernetes).before(v)
}

// minorVersion reads the table's own versions, which a test keeps well formed.
func minorVersion(text string) version {
	var v version

	_, _ = fmt.Sscanf(text, "v%d.%d", &v.major, &v.minor)

	return v
}

func find(talos version) (Release, bool) {
	for _, release := range Releases() {
		if release.Talos == talos.minorString() {
			return release, true
		}
	}

	return Release{}, false
}

func runnersOf(kubernetes version) string {
	var names []string

	for _, release := range Releases() {
		if kubernetes.within(release) {
			names = append(names, release.Talos)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return ", or Talos " + strings.Join(names, " or ")
}
