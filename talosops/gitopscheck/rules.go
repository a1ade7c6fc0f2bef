package main

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/talosops/charts"
)

// judge says what is wrong with a cluster, beside what building it has shown.
func (c *cluster) judge(s *schemas) {
	for one, o := range c.objects() {
		for _, problem := range judgeObject(s, o) {
			c.report("%s: %s", one.at(o), problem)
		}
	}

	c.judgeOrder()
	c.judgeDuplicates()
	c.judgeReleases()
	c.judgeDefinitions()
	c.judgeClasses()
	c.judgeRoutes()
	c.judgePrivileges()
}

func judgeObject(s *schemas, o object) []string {
	plain := o.DeepCopy()
	delete(plain.Object, "sops") // kustomize-controller takes it away

	problems, known := s.judge(plain)
	if !known {
		problems = append(problems, "is of a kind that no module defines ("+o.GetAPIVersion()+"), so nothing can be said of it: "+
			"correct apiVersion and kind, or add the module of its definition to talosops/gitopscheck/schemas.go")
	}

	return slices.Concat(problems, judgePins(o), judgeTransport(o))
}

// judgeTransport finds sources that whoever is in between can change. Loopback has nobody in between.
func judgeTransport(o object) []string {
	if o.GroupVersionKind().Group != sourceGroup {
		return nil
	}

	var problems []string

	if insecure, _, _ := unstructured.NestedBool(o.Object, "spec", "insecure"); insecure {
		problems = append(problems, "is read without encryption (spec.insecure): remove that")
	}

	source, err := url.Parse(text(o, "", "spec", "url"))
	if err == nil && source.Scheme == "http" {
		if address, err := netip.ParseAddr(source.Hostname()); err != nil || !address.IsLoopback() {
			problems = append(problems, fmt.Sprintf("is read from %s without encryption: write https://", source.Redacted()))
		}
	}

	return problems
}

// judgeOrder finds what depends on something that is not there, or on itself.
func (c *cluster) judgeOrder() {
	depends := map[string][]string{}

	for _, one := range c.components {
		if one.name != "" {
			depends[one.name] = one.dependsOn
		}
	}

	for _, one := range c.components {
		for _, name := range one.dependsOn {
			if _, there := depends[name]; !there {
				c.report("%s: %s depends on %s, which the cluster does not have: list its folder in kustomization.yaml",
					c.folder, one.name, name)
			}
		}

		// A circle is told of once, by its first name.
		if circle := circleOf(depends, []string{one.name}); circle != nil && one.name == slices.Min(circle) {
			c.report("%s: %s, so that Flux reconciles none of them: remove one dependsOn", c.folder,
				strings.Join(append(circle, circle[0]), " depends on "))
		}
	}
}

// circleOf follows dependencies from the last name of a path until they lead back to the first.
func circleOf(depends map[string][]string, way []string) []string {
	for _, next := range depends[way[len(way)-1]] {
		if next == way[0] {
			return way
		}

		if !slices.Contains(way, next) {
			if circle := circleOf(depends, append(slices.Clone(way), next)); circle != nil {
				return circle
			}
		}
	}

	return nil
}

// judgeDuplicates finds objects and Helm releases that two places make.
func (c *cluster) judgeDuplicates() {
	made := map[string]string{}

	for one, o := range c.objects() {
		names := []string{fmt.Sprintf("%s %s", o.GetKind(), strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))}
		keys := []string{o.GroupVersionKind().GroupKind().String() + names[0]}

		if isRelease(o) {
			release := charts.FluxReleaseOf(o)
			names = append(names, "release "+release.Records+"/"+release.Name)
			keys = append(keys, names[1])
		}

		for i, key := range keys {
			if before, twice := made[key]; twice {
				c.report("%s: %s is made twice, by %s and %s: remove one", c.folder, names[i], before, one.folder)

				break // of two HelmReleases of one name, their releases are two as well
			}

			made[key] = one.folder
		}
	}
}

func isRelease(o object) bool { return isKind(o, helmGroup, "HelmRelease") }

// chartOf is the name of the chart that a HelmRelease installs.
func chartOf(o object) string { return text(o, "", "spec", "chart", "spec", "chart") }

// text is a text of an object, or a default.
func text(o object, otherwise string, fields ...string) string {
	if found, _, _ := unstructured.NestedString(o.Object, fields...); found != "" {
		return found
	}

	return otherwise
}

// kubernetesNamespaces are there without anybody's doing, or by the program's.
var kubernetesNamespaces = []string{ //nolint:gochecknoglobals // a table
	"default", "kube-system", "kube-public", "kube-node-lease", fluxNamespace,
}

// judgeReleases follows what a HelmRelease names: its chart, its namespace, and what its values come from.
func (c *cluster) judgeReleases() {
	for one, o := range c.objects() {
		if !isRelease(o) {
			continue
		}

		if kind, name, from := c.sourceOf(o); from == nil {
			c.report("%s: its chart comes from %s %s, which the cluster does not have", one.at(o), kind, name)
		}

		namespace := charts.FluxReleaseOf(o).Namespace
		if !slices.Contains(kubernetesNamespaces, namespace) && c.find("", "Namespace", "", namespace) == nil {
			c.report("%s: nothing makes its namespace %s: add a Namespace beside it", one.at(o), namespace)
		}

		c.judgeValues(one.at(o), o)
	}
}

func (c *cluster) judgeValues(at string, release object) {
	for _, source := range items(release, "spec", "valuesFrom") {
		kind, name := text(source, "", "kind"), text(source, "", "name")
		if kind == "Secret" && name == valuesName {
			continue
		}

		if source.Object["optional"] != true && c.find("", kind, release.GetNamespace(), name) == nil {
			c.report("%s: its values come from %s %s, which %s does not have: copy secret.sops.example.yaml of the component "+
				"there, fill it in, encrypt it and list it in kustomization.yaml", at, kind, name, c.folder)
		}
	}
}

var (
	imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image:\s*["']?([^\s"'{}]+)`)
	exact     = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
)

// judgePins finds versions that are missing, or that mean another thing tomorrow.
func judgePins(o object) []string {
	var problems []string

	switch kind := o.GetKind(); {
	case isRelease(o):
		version := text(o, "", "spec", "chart", "spec", "version")
		if fields(o, "spec", "chartRef") == nil && (!exact.MatchString(version) ||
			!semver.IsValid("v"+strings.TrimPrefix(version, "v"))) {
			problems = append(problems, fmt.Sprintf("the chart's version %q is not exact: write spec.chart.spec.version in full, "+
				"as 1.2.3", version))
		}
	case o.GroupVersionKind().Group == sourceGroup && kind != "HelmRepository":
		tag := text(o, "", "spec", "ref", "tag")
		if text(o, "", "spec", "ref", "digest") == "" && text(o, "", "spec", "ref", "commit") == "" &&
			(tag == "" || tag == "latest") {
			problems = append(problems, "has no version: write spec.ref.tag")
		}
	}

	for _, image := range imagesIn(o.Object) {
		if unpinned(image) {
			problems = append(problems, fmt.Sprintf("the image %s has no version: write its tag or digest, not latest", image))
		}
	}

	return problems
}

// imagesIn finds images wherever they are: in pods, in values of charts and in texts of ConfigMaps.
func imagesIn(value any) []string {
	var found []string

	switch value := value.(type) {
	case map[string]any:
		repository, named := value["repository"].(string)
		if tag, stated := value["tag"]; named && stated {
			found = append(found, fmt.Sprintf("%s:%v", repository, tag))
		}

		for key, inner := range value {
			if image, is := inner.(string); is && key == "image" {
				found = append(found, image)
			} else {
				found = append(found, imagesIn(inner)...)
			}
		}
	case []any:
		for _, inner := range value {
			found = append(found, imagesIn(inner)...)
		}
	case string:
		for _, match := range imageLine.FindAllStringSubmatch(value, -1) {
			found = append(found, match[1])
		}
	}

	slices.Sort(found)

	return found
}

func unpinned(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return false
	}

	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, tagged := strings.Cut(name, ":")

	return !tagged || tag == "" || tag == "latest"
}
