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

// check checks a cluster's objects by themselves and against each other.
func (c *cluster) check(s *schemas) {
	for comp, o := range c.objects() {
		for _, problem := range checkObject(s, o) {
			c.report("%s: %s", comp.at(o), problem)
		}
	}

	c.checkDependencies()
	c.checkDuplicates()
	c.checkReleases()
	c.checkDefinitions()
	c.checkStorageClasses()
	c.checkRoutes()
	c.checkPodSecurity()
}

func checkObject(s *schemas, o object) []string {
	plain := o.DeepCopy()
	delete(plain.Object, "sops") // removed by kustomize-controller

	problems, known := s.check(plain)
	if !known {
		problems = append(problems, "is of an unknown kind ("+o.GetAPIVersion()+") and cannot be checked: correct apiVersion and "+
			"kind, or add the module of its definition to talosops/gitopscheck/schemas.go")
	}

	return slices.Concat(problems, checkPins(o), checkTransport(o))
}

// checkTransport finds sources that are read without encryption. On loopback nobody can intercept them.
func checkTransport(o object) []string {
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
			problems = append(problems, fmt.Sprintf("is read from %s without encryption: use https://", source.Redacted()))
		}
	}

	return problems
}

// checkDependencies finds missing and circular dependencies.
func (c *cluster) checkDependencies() {
	depends := map[string][]string{}

	for _, comp := range c.components {
		if comp.name != "" {
			depends[comp.name] = comp.dependsOn
		}
	}

	for _, comp := range c.components {
		for _, name := range comp.dependsOn {
			if _, ok := depends[name]; !ok {
				c.report("%s: %s depends on %s, which the cluster does not have: list its folder in kustomization.yaml",
					c.folder, comp.name, name)
			}
		}

		// A cycle is reported once, at its first name.
		if cycle := findCycle(depends, []string{comp.name}); cycle != nil && comp.name == slices.Min(cycle) {
			c.report("%s: %s, so that Flux reconciles none of them: remove one dependsOn", c.folder,
				strings.Join(append(cycle, cycle[0]), " depends on "))
		}
	}
}

// findCycle follows dependencies from the last name of a path until they lead back to the first.
func findCycle(depends map[string][]string, path []string) []string {
	for _, next := range depends[path[len(path)-1]] {
		if next == path[0] {
			return path
		}

		if !slices.Contains(path, next) {
			if cycle := findCycle(depends, append(slices.Clone(path), next)); cycle != nil {
				return cycle
			}
		}
	}

	return nil
}

// checkDuplicates finds objects and Helm releases that are created twice.
func (c *cluster) checkDuplicates() {
	owners := map[string]string{}

	for comp, o := range c.objects() {
		names := []string{fmt.Sprintf("%s %s", o.GetKind(), strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))}
		keys := []string{o.GroupVersionKind().GroupKind().String() + names[0]}

		if isRelease(o) {
			release := charts.FluxReleaseOf(o)
			names = append(names, "release "+release.Records+"/"+release.Name)
			keys = append(keys, names[1])
		}

		for i, key := range keys {
			if first, duplicate := owners[key]; duplicate {
				c.report("%s: %s is created twice, by %s and %s: remove one", c.folder, names[i], first, comp.folder)

				break // the releases of a duplicate HelmRelease are duplicates as well
			}

			owners[key] = comp.folder
		}
	}
}

func isRelease(o object) bool { return isKind(o, helmGroup, "HelmRelease") }

// chartName returns the name of the chart that a HelmRelease installs.
func chartName(o object) string { return text(o, "", "spec", "chart", "spec", "chart") }

// text returns a string field of an object, or the fallback if it is empty.
func text(o object, fallback string, fields ...string) string {
	if found, _, _ := unstructured.NestedString(o.Object, fields...); found != "" {
		return found
	}

	return fallback
}

// existingNamespaces are created by Kubernetes or by the program.
var existingNamespaces = []string{ //nolint:gochecknoglobals // a table
	"default", "kube-system", "kube-public", "kube-node-lease", fluxNamespace,
}

// checkReleases checks that the chart's source, the namespace and the sources of values of a HelmRelease exist.
func (c *cluster) checkReleases() {
	for comp, o := range c.objects() {
		if !isRelease(o) {
			continue
		}

		if kind, name, source := c.sourceOf(o); source == nil {
			c.report("%s: its chart comes from %s %s, which the cluster does not have", comp.at(o), kind, name)
		}

		namespace := charts.FluxReleaseOf(o).Namespace
		if !slices.Contains(existingNamespaces, namespace) && c.find("", "Namespace", "", namespace) == nil {
			c.report("%s: nothing creates its namespace %s: add a Namespace beside it", comp.at(o), namespace)
		}

		c.checkValues(comp.at(o), o)
	}
}

func (c *cluster) checkValues(at string, release object) {
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
	imageLine    = regexp.MustCompile(`(?m)^\s*(?:- )?image:\s*["']?([^\s"'{}]+)`)
	exactVersion = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
)

// checkPins finds versions that are missing or not exact.
func checkPins(o object) []string {
	var problems []string

	switch kind := o.GetKind(); {
	case isRelease(o):
		version := text(o, "", "spec", "chart", "spec", "version")
		if fields(o, "spec", "chartRef") == nil && (!exactVersion.MatchString(version) ||
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
		if isUnpinned(image) {
			problems = append(problems, fmt.Sprintf("the image %s has no version: write its tag or digest, not latest", image))
		}
	}

	return problems
}

// imagesIn returns all images in a value: of pods, in values of charts and in the text of ConfigMaps.
func imagesIn(value any) []string {
	var found []string

	switch value := value.(type) {
	case map[string]any:
		repository, hasRepository := value["repository"].(string)
		if tag, hasTag := value["tag"]; hasRepository && hasTag {
			found = append(found, fmt.Sprintf("%s:%v", repository, tag))
		}

		for key, inner := range value {
			if image, ok := inner.(string); ok && key == "image" {
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

func isUnpinned(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return false
	}

	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, tagged := strings.Cut(name, ":")

	return !tagged || tag == "" || tag == "latest"
}
