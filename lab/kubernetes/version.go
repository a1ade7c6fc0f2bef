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

// gitVersion is what every part of Kubernetes takes for the version that it was built from. component-base lets a
// program change it only within a patch release.
//
//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

// How many minors before its own a build can be. Kubernetes emulates three. A member of etcd works in a cluster of the
// minor before.
const (
	kubernetesBack = 3
	etcdBack       = 1
)

// built is the version of Kubernetes that this binary was built from.
func built() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return m.Version
			}
		}
	}

	return "v" + componentversion.DefaultKubeBinaryVersion + ".0"
}

// reportBuild makes Kubernetes report what it was built from: a module carries no version of its own.
func reportBuild() {
	if err := reportKubernetes(built()); err != nil {
		panic(err) // a build can always be itself
	}
}

// reportKubernetes makes Kubernetes report a version, and behave as its minor does: the effective version, which
// decides about features and API versions, follows from it. Not emulated are command lines: the flags are those of the
// build, and feature gates that it has removed are unknown.
func reportKubernetes(text string) error {
	wanted, err := version.ParseSemantic(text)
	if err != nil || !strings.HasPrefix(text, "v") {
		return fmt.Errorf("%q is not a version of Kubernetes; use one such as %s", text, built())
	}

	if err := allow("Kubernetes", wanted, version.MustParseSemantic(built()), kubernetesBack); err != nil {
		return err
	}

	gitVersion = text

	if err := componentversion.SetDynamicVersion(text); err != nil {
		return err
	}

	// The registry has taken the build's version before main, and no part has asked it yet.
	registry := compatibility.DefaultComponentGlobalsRegistry
	registry.Reset()

	return registry.Register(basecompatibility.DefaultKubeComponent,
		compatibility.DefaultBuildEffectiveVersion(), utilfeature.DefaultMutableFeatureGate)
}

// reportEtcd makes etcd report a release of its own minor or of the one before. What members agree on follows from what
// they report: the version of the cluster and of its storage, which is the lowest of its members' and does not fall
// again, and that lower members and snapshots of higher ones are refused. So a cluster is upgraded one member at a
// time, as with two builds. All else is not emulated: flags, calls, defaults and the format of files are the build's.
func reportEtcd(text string) error {
	own := version.MustParseSemantic(etcdversion.Version)

	wanted, err := version.ParseSemantic(text)
	if err != nil {
		return fmt.Errorf("%q is not a version of etcd; use one such as v%s", text, own)
	}

	if err := allow("etcd", wanted, own, etcdBack); err != nil {
		return err
	}

	etcdversion.Version = wanted.String()
	etcdversion.APIVersion = fmt.Sprintf("%d.%d", wanted.Major(), wanted.Minor())

	return nil
}

// allow refuses versions outside of a build's own minor and so many before it.
func allow(program string, wanted, own *version.Version, back uint) error {
	newest := version.MajorMinor(own.Major(), own.Minor())
	oldest := newest.SubtractMinor(back)

	if minor := version.MajorMinor(wanted.Major(), wanted.Minor()); minor.LessThan(oldest) || newest.LessThan(minor) {
		return fmt.Errorf("this build cannot be %s v%s: it is v%s and reports minors from v%s to v%s; "+
			"use one of these, or run the lab's model (--kubernetes=model)", program, wanted, own, oldest, newest)
	}

	return nil
}
