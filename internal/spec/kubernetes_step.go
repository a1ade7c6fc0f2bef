package spec

import "fmt"

// CheckKubernetesUpgrade returns the problem of an upgrade of Kubernetes in one step, with a remedy; empty if it is
// supported or a version is not a full one. Components may be one minor version apart during an upgrade, and an API
// server may have stored objects that an older one cannot read.
func CheckKubernetesUpgrade(from, to string) string {
	old, wanted := versionNumbers(from), versionNumbers(to)
	if old == nil || wanted == nil {
		return ""
	}

	step := wanted[1] - old[1]

	switch {
	case old[0] != wanted[0]:
		return "is another major version, to which there is no upgrade; create a new cluster"
	case compareVersions(from, to) > 0:
		return fmt.Sprintf("is older, and Kubernetes is never downgraded; set %s, or a newer one", from)
	case step > 1:
		return fmt.Sprintf("is %d minor versions newer, and Kubernetes is upgraded by one at a time; "+
			"set the latest patch of v%d.%d first", step, old[0], old[1]+1)
	default:
		return ""
	}
}
