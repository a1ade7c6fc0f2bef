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
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/kubeupgrade"
)

// allAnswers is how long a cluster may take to answer: an operator's own network may be away for a moment.
const allAnswers = 2 * time.Minute

const kubernetesCheck = "Kubernetes"

// part is something that has a version of Kubernetes.
type part struct{ node, what, version string }

func (p part) String() string { return fmt.Sprintf("%s: %s %s", p.node, p.what, p.version) }

// kubernetesSurvey is what a cluster runs.
type kubernetesSurvey struct {
	cluster *cluster.Cluster
	nodes   []cluster.NodeState // all that are registered
	ready   bool                // some are: there is a CNI
	skipped bool                // one is registered that is left as it is
	images  kubeupgrade.Images  // of a control plane
	proxy   string
	parts   []part
	// notServed says that the API server cannot take part in an upgrade.
	notServed *kube.NotServedError
}

// answered is what a control plane says of itself.
type answered struct {
	request.Node

	silent error
	holds  bool // data of etcd
}

// survey looks at what runs; nil = there is no cluster yet.
func (u *kubernetesUpgrader) survey(ctx context.Context) (*kubernetesSurvey, error) {
	asked := checks.Goal{
		Before: "the cluster said which Kubernetes it runs", Missed: "the cluster does not say which Kubernetes it runs",
		Remedy: "start or repair these machines, and make sure that they are reachable from here",
	}

	var found *kubernetesSurvey

	err := u.Within(ctx, min(u.Timeout, allAnswers), asked, func(ctx context.Context) checks.Report {
		answers := u.askControlPlanes(ctx)
		if !slices.ContainsFunc(answers, func(a answered) bool { return a.holds }) {
			return nil // there is no cluster yet
		}

		var r checks.Report

		found, r = u.lookAtAll(ctx, answers)

		return r
	})
	if err != nil {
		return nil, err
	}

	return found, nil
}

// askControlPlanes asks all at once.
func (u *kubernetesUpgrader) askControlPlanes(ctx context.Context) []answered {
	return checks.Each(u.req.ControlPlanes, func(_ int, n request.Node) answered {
		holds, err := u.Talos.HoldsEtcd(ctx, n.Address)

		return answered{Node: n, silent: err, holds: holds}
	})
}

// lookAtAll asks a cluster what it runs; a report says what it does not tell.
func (u *kubernetesUpgrader) lookAtAll(ctx context.Context, answers []answered) (*kubernetesSurvey, checks.Report) {
	var holders []request.Node

	for _, a := range answers {
		if a.holds {
			holders = append(holders, a.Node)
		}
	}

	unknown := func(problem string, err error) (*kubernetesSurvey, checks.Report) {
		return nil, checks.Open(holders[0].Name, kubernetesCheck, problem, err.Error())
	}

	c, err := u.open(ctx, holders)
	if err != nil {
		return unknown("gives no kubeconfig", err)
	}

	known, err := c.ListMachines(ctx)

	switch {
	case known.Address == "":
		return nil, cluster.Unlisted(holders[0].Name, kubernetesCheck, err)
	case err != nil:
		return unknown("does not list the members of etcd", err)
	}

	s := &kubernetesSurvey{cluster: c}
	c.ControlPlanes = nil

	var r checks.Report

	for _, a := range answers {
		if !a.holds && !known.Has(a.Node) {
			continue // a new one
		}

		c.ControlPlanes = append(c.ControlPlanes, a.Node)

		if a.silent != nil {
			r = append(r, cluster.Silent(a.Node, kubernetesCheck, a.silent)...)
		}
	}

	if len(r) > 0 {
		return nil, r
	}

	s.addNodes(known.Nodes, u.req.Skip)

	s.proxy, err = c.Kubernetes.KubeProxy(ctx, known.Address)
	if err != nil && !errors.As(err, &s.notServed) {
		return unknown("the Kubernetes API does not tell kube-proxy's image", err)
	}

	return u.addImages(ctx, s)
}

func (s *kubernetesSurvey) addNodes(listed []kube.Node, skip []string) {
	all := len(listed)
	listed = slices.DeleteFunc(slices.Clone(listed), func(n kube.Node) bool { return slices.Contains(skip, n.Name) })
	s.skipped = len(listed) < all
	s.ready = slices.ContainsFunc(listed, func(n kube.Node) bool { return n.Ready })

	for _, n := range listed {
		// Where some are Ready, each has to be before anything is changed, and afterwards.
		node := request.Node{Name: n.Name, Address: n.Address}
		s.nodes = append(s.nodes, cluster.NodeState{Node: node, Registered: true, Ready: s.ready})

		if s.kubelets() {
			s.parts = append(s.parts, part{n.Name, "kubelet", n.Kubelet})
		}
	}
}

// kubelets says that these are upgraded as well. That waits for every node to be Ready.
func (s *kubernetesSurvey) kubelets() bool { return s.ready && !s.skipped }

// addImages asks each control plane for the images of its static pods.
func (u *kubernetesUpgrader) addImages(ctx context.Context, s *kubernetesSurvey) (*kubernetesSurvey, checks.Report) {
	for i, n := range s.cluster.ControlPlanes {
		images, err := u.Talos.KubernetesImages(ctx, n.Address)
		if err != nil {
			return nil, cluster.Silent(n, kubernetesCheck, err)
		}

		if i == 0 {
			s.images = images
		}

		for _, p := range []struct{ what, image string }{
			{"API server", images.APIServer}, {"controller manager", images.ControllerManager}, {"scheduler", images.Scheduler},
		} {
			if p.image != "" {
				s.parts = append(s.parts, part{n.Name, p.what, tagOf(p.image)})
			}
		}
	}

	if s.proxy != "" {
		s.parts = append(s.parts, part{"kube-system/kube-proxy", "image", tagOf(s.proxy)})
	}

	return s, nil
}

// differing are the parts of another version.
func (s *kubernetesSurvey) differing(version string) []part {
	return slices.DeleteFunc(slices.Clone(s.parts), func(p part) bool { return p.version == version })
}

// oldest is the oldest version that runs.
func (s *kubernetesSurvey) oldest() string {
	return slices.MinFunc(s.parts, func(a, b part) int { return semver.Compare(a.version, b.version) }).version
}

// arrived says what does not run the version after all.
func (s *kubernetesSurvey) arrived(version string) error {
	if s == nil {
		return errors.New("the cluster is gone: no control plane has data of etcd any more: restore it (docs/recovery.md)")
	}

	if differ := s.differing(version); len(differ) > 0 {
		return fmt.Errorf("not everything runs Kubernetes %s:\n%s\nrun the same again: what was done is skipped", version, partLines(differ))
	}

	return nil
}

// judge says that there is nothing to do, or refuses, before anything is touched, what cannot be done in one step.
func (u *kubernetesUpgrader) judge(s *kubernetesSurvey) (done bool, err error) {
	version := u.req.KubernetesVersion

	differ := s.differing(version)
	if len(differ) == 0 {
		u.Print("Kubernetes: " + version + " runs, and nothing is to be done")

		return true, nil
	}

	refused := map[string][]part{}

	for _, p := range differ {
		if problem := spec.KubernetesStep(p.version, version); problem != "" {
			refused[problem] = append(refused[problem], p)
		}
	}

	var problems []error
	for _, problem := range slices.Sorted(maps.Keys(refused)) {
		problems = append(problems, fmt.Errorf(
			"kubernetesVersion: %q %s; nothing was changed, and this runs:\n%s", version, problem, partLines(refused[problem])))
	}

	if s.notServed != nil {
		problems = append(problems, fmt.Errorf(
			"the Kubernetes API cannot be upgraded from %s to %s: %w", s.oldest(), version, s.notServed))
	}

	return false, errors.Join(problems...)
}

func partLines(parts []part) string {
	list := make([]string, 0, len(parts))
	for _, p := range parts {
		list = append(list, "  "+p.String())
	}

	return strings.Join(list, "\n")
}

// request is what the library has to know.
func (s *kubernetesSurvey) request(req *kubernetesRequest) kubeupgrade.Request {
	upgrade := kubeupgrade.Request{
		Talosconfig: req.Talosconfig, From: s.oldest(), To: req.KubernetesVersion, Kubelets: s.kubelets(),
		Images: kubeupgrade.Images{
			APIServer:         repositoryOf(s.images.APIServer),
			ControllerManager: repositoryOf(s.images.ControllerManager),
			Scheduler:         repositoryOf(s.images.Scheduler),
			Kubelet:           repositoryOf(s.images.Kubelet),
			Proxy:             repositoryOf(s.proxy),
		},
	}
	for _, n := range s.cluster.ControlPlanes {
		upgrade.Endpoints = append(upgrade.Endpoints, n.Address)
	}

	for _, n := range s.nodes {
		upgrade.Nodes = append(upgrade.Nodes, n.Node)
	}

	return upgrade
}

// tagOf is the tag of an image, and repositoryOf what is before it.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")

	return strings.TrimPrefix(image[len(repositoryOf(image)):], ":")
}

func repositoryOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon]
	}

	return image
}
