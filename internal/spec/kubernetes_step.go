package spec

import "fmt"

// KubernetesStep says why a cluster cannot go from one version of Kubernetes to another one in one step, and what to
// do; it is empty where it can. Of a version that is not one in full nothing is said. Kubernetes' parts may be one
// minor version apart while they are upgraded, and an API server may have stored what an older one does not read.
func KubernetesStep(from, to string) string {
	old, wanted := parts(from), parts(to)
	if old == nil || wanted == nil {
		return ""
	}

	step := wanted[1] - old[1]

	switch {
	case old[0] != wanted[0]:
		return "is another major version, which nothing upgrades in place; make a new cluster"
	case compareVersions(from, to) > 0:
		return fmt.Sprintf("is older, and Kubernetes is never downgraded; set %s, or a newer one", from)
	case step > 1:
		return fmt.Sprintf("is %d minor versions newer, and Kubernetes is upgraded by one at a time; "+
			"set the latest patch of v%d.%d first", step, old[0], old[1]+1)
	default:
		return ""
	}
}
