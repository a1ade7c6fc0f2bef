package main

import (
	"fmt"
	"runtime/debug"
	"strings"
	_ "unsafe" // for the linkname below

	etcdversion "go.etcd.io/etcd/api/v3/version"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	componentversion "k8s.io/component-base/version"
)

// gitVersion is the build version of every part of Kubernetes. component-base lets a program change it only within a
// patch release.
//
//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

// How many minors before its own a build can report. Kubernetes emulates three. A member of etcd works in a cluster of
// the previous minor.
const (
	kubernetesMinors = 3
	etcdMinors       = 1
)

// buildVersion returns the version of Kubernetes that this binary was built from.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return m.Version
			}
		}
	}

	return "v" + componentversion.DefaultKubeBinaryVersion + ".0"
}

// reportBuild makes Kubernetes report its build version: a module has no version of its own.
func reportBuild() {
	if err := reportKubernetes(buildVersion()); err != nil {
		panic(err) // a build can always report its own version
	}
}

// reportKubernetes makes Kubernetes report a version, and behave as its minor does: the effective version, which
// determines features and API versions, derives from it. Command lines are not emulated: flags are the build's, and
// feature gates that it has removed are unknown.
func reportKubernetes(text string) error {
	wanted, err := version.ParseSemantic(text)
	if err != nil || !strings.HasPrefix(text, "v") {
		return fmt.Errorf("%q is not a version of Kubernetes; use one such as %s", text, buildVersion())
	}

	own := version.MustParseSemantic(buildVersion())
	if err := checkMinor("Kubernetes", wanted, own, kubernetesMinors); err != nil {
		return err
	}

	gitVersion = text

	if err := componentversion.SetDynamicVersion(text); err != nil {
		return err
	}

	// The registry read the build's version before main, and no part has used it yet.
	registry := compatibility.DefaultComponentGlobalsRegistry
	registry.Reset()

	return registry.Register(basecompatibility.DefaultKubeComponent,
		compatibility.DefaultBuildEffectiveVersion(), utilfeature.DefaultMutableFeatureGate)
}

// reportEtcd makes etcd report a release of its own minor or of the previous one. Members negotiate with the reported
// versions: the version of the cluster and of its storage is the lowest of the members' and never falls; older members
// and snapshots of newer ones are refused. So a cluster is upgraded one member at a time, as with two builds. Nothing
// else is emulated: flags, calls, defaults and file formats are the build's.
func reportEtcd(text string) error {
	own := version.MustParseSemantic(etcdversion.Version)

	wanted, err := version.ParseSemantic(text)
	if err != nil {
		return fmt.Errorf("%q is not a version of etcd; use one such as v%s", text, own)
	}

	if err := checkMinor("etcd", wanted, own, etcdMinors); err != nil {
		return err
	}

	etcdversion.Version = wanted.String()
	etcdversion.APIVersion = fmt.Sprintf("%d.%d", wanted.Major(), wanted.Minor())

	return nil
}

// checkMinor refuses versions outside of a build's own minor and so many before it.
func checkMinor(program string, wanted, own *version.Version, back uint) error {
	newest := version.MajorMinor(own.Major(), own.Minor())
	oldest := newest.SubtractMinor(back)

	if minor := version.MajorMinor(wanted.Major(), wanted.Minor()); minor.LessThan(oldest) || newest.LessThan(minor) {
		return fmt.Errorf("this build cannot be %s v%s: it is v%s and reports minors from v%s to v%s; "+
			"use one of these, or run the lab's model (--kubernetes=model)", program, wanted, own, oldest, newest)
	}

	return nil
}
