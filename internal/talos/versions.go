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

// CheckVersions returns an error unless a Talos version is supported and runs a Kubernetes version; both are full
// versions with their v.
func CheckVersions(talos, kubernetes string) error {
	release, err := ReleaseOf(talos)
	if err != nil {
		return err
	}

	wanted, err := parseVersion("Kubernetes", kubernetes)
	if err != nil {
		return err
	}

	if wanted.runsOn(release) {
		return nil
	}

	return fmt.Errorf("version %s of Kubernetes does not run on Talos %s: choose a version from %s to %s%s",
		kubernetes, talos, release.OldestKubernetes, release.NewestKubernetes, alternativesFor(wanted))
}

// ReleaseOf returns the release of a full, supported version of Talos.
func ReleaseOf(talos string) (Release, error) {
	parsed, err := parseVersion("Talos", talos)
	if err != nil {
		return Release{}, err
	}

	all := supportedReleases()
	choice := fmt.Sprintf("choose a version from %s to %s", all[0].Talos, all[len(all)-1].Talos)

	release, known := findRelease(parsed)
	switch {
	case known && release.Support == Supported:
		return release, nil
	case known && release.Support == Ended:
		return Release{}, fmt.Errorf("version %s of Talos is not supported any more: %s; the last version of this program "+
			"that supports it, and upgrades from it, is %s", talos, choice, LastWithEnded)
	case known || minorVersion(all[len(all)-1].Talos).before(parsed):
		return Release{}, fmt.Errorf("version %s of Talos is not supported yet: %s", talos, choice)
	default:
		return Release{}, fmt.Errorf("version %s of Talos is not supported: %s", talos, choice)
	}
}

// DefaultKubernetes returns the default Kubernetes version of a supported Talos version.
func DefaultKubernetes(talos string) (string, bool) {
	release, err := ReleaseOf(talos)

	return release.DefaultKubernetes, err == nil
}

// Contracts returns the version contracts that clusters may have, oldest first: those of supported releases and of
// ended ones, with which older clusters were created.
func Contracts() []string {
	var list []string

	for _, release := range Releases() {
		if !slices.Contains(list, release.Contract) && release.Support != Announced {
			list = append(list, release.Contract)
		}
	}

	return list
}

// EndsOfLife returns when the given full versions of Talos and Kubernetes reach their end of life, as far as known.
func EndsOfLife(talos, kubernetes string) (ends []EndOfLife) {
	if parsed, err := parseVersion("Talos", talos); err == nil {
		if release, _ := findRelease(parsed); release.EndOfLife != "" {
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

// EndOfLife is the day from which a version receives no fixes (2026-09-04).
type EndOfLife struct{ Of, Day string }

// String describes it for users.
func (e EndOfLife) String() string { return e.Of + " gets fixes until " + e.Day }

// Reached reports whether the day has come.
func (e EndOfLife) Reached(now time.Time) bool { return now.UTC().Format(time.DateOnly) >= e.Day }

// MinimumSize returns the smallest machine for a role, from Talos' system requirements.
func MinimumSize(role string) (cores, memoryMiB, diskGiB int) {
	if role == RoleControlPlane {
		return 2, 2048, 10
	}

	return 1, 1024, 10
}

type version struct{ major, minor int }

var versionPattern = regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})\.\d{1,4}(-[0-9A-Za-z.-]+)?$`)

func parseVersion(of, text string) (version, error) {
	match := versionPattern.FindStringSubmatch(text)
	if match == nil {
		return version{}, fmt.Errorf("%q is not a version of %s: write it in full, such as %s", text, of, exampleVersion(of))
	}

	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])

	return version{major, minor}, nil
}

func exampleVersion(of string) string {
	all := supportedReleases()
	if of == "Kubernetes" {
		return all[len(all)-1].DefaultKubernetes
	}

	return all[len(all)-1].Newest
}

func (v version) minorString() string { return fmt.Sprintf("v%d.%d", v.major, v.minor) }

func (v version) before(other version) bool {
	return v.major < other.major || v.major == other.major && v.minor < other.minor
}

func (v version) runsOn(r Release) bool {
	return !v.before(minorVersion(r.OldestKubernetes)) && !minorVersion(r.NewestKubernetes).before(v)
}

// minorVersion parses versions of the table of releases, which a test validates.
func minorVersion(text string) version {
	var v version

	_, _ = fmt.Sscanf(text, "v%d.%d", &v.major, &v.minor)

	return v
}

func findRelease(talos version) (Release, bool) {
	for _, release := range Releases() {
		if release.Talos == talos.minorString() {
			return release, true
		}
	}

	return Release{}, false
}

var contractPattern = regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})(\.|$)`)

// releaseOfContract returns the release of a version contract: v1.12, or a full version. Contracts older than all
// releases, which imported secrets may have, are treated as the oldest one.
func releaseOfContract(contract string) (Release, error) {
	parts := contractPattern.FindStringSubmatch(contract)
	if parts == nil {
		return Release{}, fmt.Errorf("contract: %q is not a version contract: use one of %s", contract, strings.Join(Contracts(), ", "))
	}

	minor := minorVersion(parts[0])

	if release, known := findRelease(minor); known {
		return release, nil
	}

	if oldest := Releases()[0]; minor.before(minorVersion(oldest.Talos)) {
		return oldest, nil
	}

	return Release{}, fmt.Errorf("contract: %q belongs to no known release: use one of %s", contract,
		strings.Join(Contracts(), ", "))
}

func supportedReleases() []Release {
	return slices.DeleteFunc(Releases(), func(r Release) bool { return r.Support != Supported })
}

func alternativesFor(kubernetes version) string {
	var names []string

	for _, release := range supportedReleases() {
		if kubernetes.runsOn(release) {
			names = append(names, release.Talos)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return ", or Talos " + strings.Join(names, " or ")
}
