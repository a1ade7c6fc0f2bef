package main

import (
	"fmt"
	"runtime/debug"
	"strings"
	_ "unsafe" // for the linkname below

	etcdversion "go.etcd.io/etcd/api/v3/version"
	"k8s.io/apimachinery/pkg/util/version"
	componentversion "k8s.io/component-base/version"
)

// gitVersion is what every part of Kubernetes takes for the version that it was built from. component-base lets a
// program change it only within a patch release.
//
//go:linkname gitVersion k8s.io/component-base/version.gitVersion
var gitVersion string

// emulated is how many minors before its own Kubernetes can emulate.
const emulated = 3

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
// decides about features and API versions, follows from it.
func reportKubernetes(text string) error {
	own := version.MustParse(componentversion.DefaultKubeBinaryVersion)
	oldest := own.SubtractMinor(emulated)

	wanted, err := version.ParseSemantic(text)
	if err != nil || !strings.HasPrefix(text, "v") {
		return fmt.Errorf("%q is not a version of Kubernetes; use one such as %s", text, built())
	}

	minor := version.MajorMinor(wanted.Major(), wanted.Minor())
	if minor.LessThan(oldest) || own.LessThan(minor) {
		return fmt.Errorf("this build cannot be Kubernetes %s: it is %s and emulates minors from v%s to v%s; "+
			"use one of these, or run the lab's model (--kubernetes=model)", text, built(), oldest, own)
	}

	gitVersion = text

	return componentversion.SetDynamicVersion(text)
}

// reportEtcd makes etcd report another patch release of its minor. Minors differ in their storage, which is not
// emulated.
func reportEtcd(text string) error {
	own := version.MustParseSemantic(etcdversion.Version)

	wanted, err := version.ParseSemantic(text)
	if err != nil {
		return fmt.Errorf("%q is not a version of etcd; use one such as v%s", text, own)
	}

	if wanted.Major() != own.Major() || wanted.Minor() != own.Minor() {
		return fmt.Errorf("this build cannot be etcd %s: it is v%s and reports releases of %d.%d only; "+
			"use one of these, or run the lab's model (--kubernetes=model)", text, own, own.Major(), own.Minor())
	}

	etcdversion.Version = strings.TrimPrefix(text, "v")

	return nil
}
