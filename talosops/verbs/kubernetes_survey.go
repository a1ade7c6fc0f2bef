package verbs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/kubeupgrade"
	"talos-proxmox/talosops/talosapi"
)

// kubernetesSurveyTimeout is how long a cluster may take to answer: the operator's own network may fail for a moment.
const kubernetesSurveyTimeout = 2 * time.Minute

const kubernetesCheck = "Kubernetes"

// component has a version of Kubernetes.
type component struct{ node, kind, version string }

func (p component) String() string { return fmt.Sprintf("%s: %s %s", p.node, p.kind, p.version) }

// kubernetesSurvey describes what a cluster runs.
type kubernetesSurvey struct {
	cluster    *cluster.Cluster
	nodes      []cluster.NodeState // registered ones
	ready      bool                // some are Ready: there is a CNI
	skipped    bool                // a registered node is to be skipped
	images     kubeupgrade.Images  // of the first control plane
	proxy      string
	components []component
	// notServed says that the API server is a model, which cannot be upgraded; may be nil.
	notServed *kube.NotServedError
}

// survey finds out what the cluster runs. It returns nil if there is no cluster yet.
func (u *kubernetesUpgrader) survey(ctx context.Context) (*kubernetesSurvey, error) {
	goal := checks.Goal{
		Before: "the cluster said which Kubernetes it runs", Missed: "the cluster does not say which Kubernetes it runs",
		Remedy: "start or repair these machines, and make sure that they are reachable from here",
	}

	var (
		found *kubernetesSurvey
		lost  error
	)

	err := u.Within(ctx, min(u.Timeout, kubernetesSurveyTimeout), goal, func(ctx context.Context) checks.Report {
		answers := u.queryControlPlanes(ctx)
		if !slices.ContainsFunc(answers, func(a observation) bool { return a.hasData }) {
			lost = u.lostError(answers)

			return nil // there is no cluster yet, or no longer
		}

		var r checks.Report

		found, r = u.surveyCluster(ctx, answers)

		return r
	})
	if err := errors.Join(err, lost); err != nil {
		return nil, err
	}

	return found, nil
}

// lostError says why a cluster that was bootstrapped cannot be upgraded if no control plane reports etcd data. If none
// of them answers, the run goes on, as its user wants: an update was refused before.
func (u *kubernetesUpgrader) lostError(answers []observation) error {
	silent := slices.DeleteFunc(slices.Clone(answers), func(a observation) bool { return a.err == nil })

	switch {
	case !u.req.Bootstrapped || len(silent) == len(answers):
		return nil
	case len(silent) > 0:
		return fmt.Errorf("no Kubernetes is upgraded: the control planes that answer have no etcd data, and %s does not say whether "+
			"it has any: %s. Start or repair it, then run the same again", silent[0].Name, talosapi.Cause(silent[0].err))
	default:
		return fmt.Errorf("no Kubernetes is upgraded: %w", dataLostError(u.req.ControlPlanes))
	}
}

func (u *kubernetesUpgrader) queryControlPlanes(ctx context.Context) []observation {
	return checks.ParallelMap(u.req.ControlPlanes, func(_ int, n request.Node) observation {
		hasData, err := u.Talos.HasEtcdData(ctx, n.Address)

		return observation{Node: n, err: err, hasData: hasData}
	})
}

// surveyCluster finds out what the cluster runs. The report names what prevents that.
func (u *kubernetesUpgrader) surveyCluster(
	ctx context.Context, answers []observation,
) (*kubernetesSurvey, checks.Report) {
	var holders []request.Node

	for _, a := range answers {
		if a.hasData {
			holders = append(holders, a.Node)
		}
	}

	unknown := func(problem string, err error) (*kubernetesSurvey, checks.Report) {
		return nil, checks.Problem(holders[0].Name, kubernetesCheck, problem, err.Error())
	}

	c, err := u.connect(ctx, holders)
	if err != nil {
		return unknown("provides no kubeconfig", err)
	}

	known, err := c.ListMachines(ctx)

	switch {
	case !known.Address.IsValid():
		return nil, cluster.NodesUnknown(holders[0].Name, kubernetesCheck, err)
	case err != nil:
		return unknown("does not list the members of etcd", err)
	}

	s := &kubernetesSurvey{cluster: c}
	c.ControlPlanes = nil

	var r checks.Report

	for _, a := range answers {
		if !a.hasData && !known.Has(a.Node) {
			continue // it is new
		}

		c.ControlPlanes = append(c.ControlPlanes, a.Node)

		if a.err != nil {
			r = append(r, cluster.Unreachable(a.Node, kubernetesCheck, a.err)...)
		}
	}

	if len(r) > 0 {
		return nil, r
	}

	s.addNodes(known.Nodes, u.req.Skip)

	s.proxy, err = c.Kubernetes.KubeProxy(ctx, known.Address)
	if err != nil && !errors.As(err, &s.notServed) {
		return unknown("the Kubernetes API does not return kube-proxy's image", err)
	}

	return u.addImages(ctx, s)
}

func (s *kubernetesSurvey) addNodes(listed []kube.Node, skip []string) {
	all := len(listed)
	listed = slices.DeleteFunc(slices.Clone(listed), func(n kube.Node) bool { return slices.Contains(skip, n.Name) })
	s.skipped = len(listed) < all
	s.ready = slices.ContainsFunc(listed, func(n kube.Node) bool { return n.Ready })

	for _, n := range listed {
		// If any node is Ready, all must be before and after the upgrade.
		node := request.Node{Name: n.Name, Address: n.Address}
		s.nodes = append(s.nodes, cluster.NodeState{Node: node, Registered: true, Ready: s.ready})

		if s.upgradesKubelets() {
			s.components = append(s.components, component{n.Name, "kubelet", n.Kubelet})
		}
	}
}

// upgradesKubelets reports whether kubelets are upgraded as well, which waits until every node is Ready.
func (s *kubernetesSurvey) upgradesKubelets() bool { return s.ready && !s.skipped }

// addImages adds the images of the control planes' static pods.
func (u *kubernetesUpgrader) addImages(ctx context.Context, s *kubernetesSurvey) (*kubernetesSurvey, checks.Report) {
	for i, n := range s.cluster.ControlPlanes {
		images, err := u.Talos.KubernetesImages(ctx, n.Address)
		if err != nil {
			return nil, cluster.Unreachable(n, kubernetesCheck, err)
		}

		if i == 0 {
			s.images = images
		}

		for _, p := range []struct{ what, image string }{
			{"API server", images.APIServer}, {"controller manager", images.ControllerManager}, {"scheduler", images.Scheduler},
		} {
			if p.image != "" {
				s.components = append(s.components, component{n.Name, p.what, versionOf(p.image)})
			}
		}
	}

	if s.proxy != "" {
		s.components = append(s.components, component{"kube-system/kube-proxy", "image", versionOf(s.proxy)})
	}

	return s, nil
}

// differing returns the components that run another version.
func (s *kubernetesSurvey) differing(version string) []component {
	return slices.DeleteFunc(slices.Clone(s.components), func(p component) bool { return p.version == version })
}

// oldest returns the oldest version that runs.
func (s *kubernetesSurvey) oldest() string {
	return slices.MinFunc(s.components, func(a, b component) int { return semver.Compare(a.version, b.version) }).version
}

// verifyVersion returns an error that names the components that do not run the version.
func (s *kubernetesSurvey) verifyVersion(version string) error {
	if s == nil {
		return errors.New("the cluster is gone: no control plane has etcd data any more: restore it (docs/recovery.md)")
	}

	if differ := s.differing(version); len(differ) > 0 {
		return fmt.Errorf("not everything runs Kubernetes %s:\n%s\nrun the same again: what was done is skipped",
			version, formatComponents(differ))
	}

	return nil
}

// validate reports whether everything runs the version already, and refuses a step that Kubernetes does not support,
// before anything is changed.
func (u *kubernetesUpgrader) validate(s *kubernetesSurvey) (done bool, err error) {
	version := u.req.KubernetesVersion

	differ := s.differing(version)
	if len(differ) == 0 {
		u.Print("Kubernetes: " + version + " runs already: nothing to do")

		return true, nil
	}

	refused := map[string][]component{}

	for _, p := range differ {
		if problem := spec.CheckKubernetesUpgrade(p.version, version); problem != "" {
			refused[problem] = append(refused[problem], p)
		}
	}

	var problems []error
	for _, problem := range slices.Sorted(maps.Keys(refused)) {
		problems = append(problems, fmt.Errorf("kubernetesVersion: %q %s; nothing was changed, and this runs:\n%s",
			version, problem, formatComponents(refused[problem])))
	}

	if s.notServed != nil {
		problems = append(problems, fmt.Errorf(
			"the Kubernetes API cannot be upgraded from %s to %s: %w", s.oldest(), version, s.notServed))
	}

	return false, errors.Join(problems...)
}

func formatComponents(parts []component) string {
	list := make([]string, 0, len(parts))
	for _, p := range parts {
		list = append(list, "  "+p.String())
	}

	return strings.Join(list, "\n")
}

// libraryRequest returns the request to Talos' upgrade library.
func (s *kubernetesSurvey) libraryRequest(req *kubernetesRequest) kubeupgrade.Request {
	upgrade := kubeupgrade.Request{
		Talosconfig: req.Talosconfig, From: s.oldest(), To: req.KubernetesVersion, Kubelets: s.upgradesKubelets(),
		Images: kubeupgrade.Images{
			APIServer:         repositoryOf(s.images.APIServer),
			ControllerManager: repositoryOf(s.images.ControllerManager),
			Scheduler:         repositoryOf(s.images.Scheduler),
			Kubelet:           repositoryOf(s.images.Kubelet),
			Proxy:             repositoryOf(s.proxy),
		},
	}
	for _, n := range s.cluster.ControlPlanes {
		upgrade.Endpoints = append(upgrade.Endpoints, n.Address.String())
	}

	for _, n := range s.nodes {
		upgrade.Nodes = append(upgrade.Nodes, n.Node)
	}

	return upgrade
}

func versionOf(image string) string {
	_, tag := talos.SplitImage(image)

	return tag
}

func repositoryOf(image string) string {
	repository, _ := talos.SplitImage(image)

	return repository
}
