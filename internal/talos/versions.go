package talos

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Roles of machines, as in machine.type.
const (
	RoleControlPlane = "controlplane"
	RoleWorker       = "worker"
)

// Check says whether a Talos version is supported and runs a Kubernetes version; both are full versions with their v.
// The error says what to do.
func Check(talos, kubernetes string) error {
	release, err := ReleaseOf(talos)
	if err != nil {
		return err
	}

	wanted, err := parseVersion("Kubernetes", kubernetes)
	if err != nil {
		return err
	}

	if wanted.within(release) {
		return nil
	}

	return fmt.Errorf("version %s of Kubernetes does not run on Talos %s: choose a version from %s to %s%s",
		kubernetes, talos, release.OldestKubernetes, release.NewestKubernetes, runnersOf(wanted))
}

// ReleaseOf returns the release of a full version of Talos. The error of one that is not supported says what to do.
func ReleaseOf(talos string) (Release, error) {
	parsed, err := parseVersion("Talos", talos)
	if err != nil {
		return Release{}, err
	}

	all := supported()
	choice := fmt.Sprintf("choose a version from %s to %s", all[0].Talos, all[len(all)-1].Talos)

	release, known := find(parsed)
	switch {
	case known && release.Support == Supported:
		return release, nil
	case known && release.Support == Ended:
		return Release{}, fmt.Errorf("version %s of Talos is not supported any more: %s; the last version of this program "+
			"that takes it, and upgrades from it, is %s", talos, choice, LastWithEnded)
	case known || minorVersion(all[len(all)-1].Talos).before(parsed):
		return Release{}, fmt.Errorf("version %s of Talos is not supported yet: %s", talos, choice)
	default:
		return Release{}, fmt.Errorf("version %s of Talos is not supported: %s", talos, choice)
	}
}

// DefaultKubernetes returns the Kubernetes version for a supported Talos version.
func DefaultKubernetes(talos string) (string, bool) {
	release, err := ReleaseOf(talos)

	return release.DefaultKubernetes, err == nil
}

// Contracts returns the version contracts that clusters may have, oldest first: those of supported releases, and of
// ended ones that a cluster has begun with.
func Contracts() []string {
	var list []string

	for _, release := range Releases() {
		if !slices.Contains(list, release.Contract) && release.Support != Announced {
			list = append(list, release.Contract)
		}
	}

	return list
}

// EndsOfLife returns, in words, from when Talos and Kubernetes of a cluster get no fixes, both in full; nothing of what
// gets them without a known end, and of what is not known.
func EndsOfLife(talos, kubernetes string) (ends []EndOfLife) {
	if parsed, err := parseVersion("Talos", talos); err == nil {
		if release, _ := find(parsed); release.EndOfLife != "" {
			ends = append(ends, EndOfLife{"Talos " + talos, release.EndOfLife})
		}
	}

	if parsed, err := parseVersion("Kubernetes", kubernetes); err == nil {
		for _, release := range KubernetesReleases() {
			if release.Kubernetes == parsed.minorString() {
				ends = append(ends, EndOfLife{"Kubernetes " + kubernetes, release.EndOfLife})
			}
		}
	}

	return ends
}

// EndOfLife is the day from which something gets no fixes: 2026-09-04.
type EndOfLife struct{ Of, Day string }

// String says it for people.
func (e EndOfLife) String() string { return e.Of + " gets fixes until " + e.Day }

// Over says whether it gets none any more.
func (e EndOfLife) Over(now time.Time) bool { return now.UTC().Format(time.DateOnly) >= e.Day }

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
	all := supported()
	if of == "Kubernetes" {
		return all[len(all)-1].DefaultKubernetes
	}

	return all[len(all)-1].Newest
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

var contractForm = regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})(\.|$)`)

// ofContract returns the release whose contract a configuration or secrets were generated for: v1.12, or a full
// version. A contract that is older than all releases, as imported secrets have, is as the oldest one's.
func ofContract(contract string) (Release, error) {
	parts := contractForm.FindStringSubmatch(contract)
	if parts == nil {
		return Release{}, fmt.Errorf("contract: %q is none: use one of %s", contract, strings.Join(Contracts(), ", "))
	}

	stated := minorVersion(parts[0])

	if release, known := find(stated); known {
		return release, nil
	}

	if oldest := Releases()[0]; stated.before(minorVersion(oldest.Talos)) {
		return oldest, nil
	}

	return Release{}, fmt.Errorf("contract: %q is of no release that is known: use one of %s", contract,
		strings.Join(Contracts(), ", "))
}

func supported() []Release {
	return slices.DeleteFunc(Releases(), func(r Release) bool { return r.Support != Supported })
}

func runnersOf(kubernetes version) string {
	var names []string

	for _, release := range supported() {
		if kubernetes.within(release) {
			names = append(names, release.Talos)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return ", or Talos " + strings.Join(names, " or ")
}
