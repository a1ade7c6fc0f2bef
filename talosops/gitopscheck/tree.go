package main

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/kustomize"
	"github.com/fluxcd/pkg/kustomize/filesys"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
)

const (
	fluxNamespace = "flux-system"
	fluxGroup     = "kustomize.toolkit.fluxcd.io"
	helmGroup     = "helm.toolkit.fluxcd.io"
	sourceGroup   = "source.toolkit.fluxcd.io"
)

// object is a Kubernetes object as Flux would apply it.
type object = *unstructured.Unstructured

// tree is a copy of the repository that Flux reconciles clusters from: Flux' library writes into it.
type tree struct {
	root string
	// links are the repository's symbolic links to manifests and folders, which Flux ignores.
	links []string
}

// copyTree copies the manifests of a repository to a folder, which the caller removes.
func copyTree(repository, folder string) (*tree, error) {
	t := &tree{root: folder}
	if err := os.CopyFS(folder, manifestFS{os.DirFS(repository), t}); err != nil {
		return nil, fmt.Errorf("unable to copy %s: %w", repository, err)
	}

	return t, nil
}

// checkLinks reports symbolic links in folders, and folders that are symbolic links.
func (t *tree) checkLinks(folders ...string) (problems []string) {
	for _, link := range t.links {
		if slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(link+"/", f+"/") }) {
			problems = append(problems, link+" is a symbolic link, which Flux ignores: replace it by its target, or list that in a "+
				"kustomization.yaml")
		}
	}

	return problems
}

// manifestFS is a file system without hidden folders, files that are not YAML, and symbolic links, which it adds to the
// tree's links.
type manifestFS struct {
	fs.FS
	tree *tree
}

func (r manifestFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.FS, name)

	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		if e.IsDir() {
			return strings.HasPrefix(e.Name(), ".")
		}

		manifest := path.Ext(e.Name()) == ".yaml"
		if e.Type()&fs.ModeSymlink == 0 {
			return !manifest
		}

		link := path.Join(name, e.Name())
		if to, err := fs.Stat(r.FS, link); manifest || err == nil && to.IsDir() {
			r.tree.links = append(r.tree.links, link)
		}

		return true
	}), err
}

// cluster has everything that Flux would apply for a cluster's folder.
type cluster struct {
	folder string
	// components are the folder itself, without a name, followed by every Flux Kustomization.
	components []*component
	problems   []string
}

// component is a Flux Kustomization.
type component struct {
	name, folder string
	dependsOn    []string
	objects      []object
}

func (c *cluster) report(format string, values ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, values...))
}

// objects iterates over the objects of all components.
func (c *cluster) objects() iter.Seq2[*component, object] {
	return func(yield func(*component, object) bool) {
		for _, comp := range c.components {
			for _, o := range comp.objects {
				if !yield(comp, o) {
					return
				}
			}
		}
	}
}

// has reports whether an object satisfies a predicate.
func (c *cluster) has(predicate func(object) bool) bool {
	for _, o := range c.objects() {
		if predicate(o) {
			return true
		}
	}

	return false
}

// find returns an object; nil if there is none.
func (c *cluster) find(group, kind, namespace, name string) object {
	for _, o := range c.objects() {
		if isKind(o, group, kind) && o.GetNamespace() == namespace && o.GetName() == name {
			return o
		}
	}

	return nil
}

func isKind(o object, group, kind string) bool {
	return o.GroupVersionKind().Group == group && o.GetKind() == kind
}

// at returns the location of an object for messages.
func (comp *component) at(o object) string {
	return fmt.Sprintf("%s: %s %s", comp.folder, o.GetKind(), o.GetName())
}

// fields returns a map in an object; nil = it is not set.
func fields(o object, path ...string) map[string]any {
	found, _, _ := unstructured.NestedMap(o.Object, path...)

	return found
}

// items returns a list of maps in an object.
func items(o object, path ...string) []object {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)

	return asObjects(list)
}

func asObjects(list []any) []object {
	found := make([]object, 0, len(list))

	for _, item := range list {
		fields, _ := item.(map[string]any)
		found = append(found, &unstructured.Unstructured{Object: fields})
	}

	return found
}

// resolve builds a cluster's folder, and the folders of all Flux Kustomizations in it that use this repository, as
// Flux' kustomize-controller does.
func (t *tree) resolve(folder string) *cluster {
	c := &cluster{folder: folder}
	root := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	root.SetNamespace(fluxNamespace)
	t.add(c, root, folder)

	for i := 0; i < len(c.components); i++ {
		for _, o := range c.components[i].objects {
			if !isKind(o, fluxGroup, "Kustomization") {
				continue
			}

			if text(o, "", "spec", "sourceRef", "name") == fluxNamespace {
				t.add(c, o, path.Clean(text(o, "", "spec", "path")))
			} else {
				c.components = append(c.components, &component{name: o.GetName(), dependsOn: dependencies(o)})
			}
		}
	}

	return c
}

func dependencies(o object) []string {
	var names []string
	for _, dependency := range items(o, "spec", "dependsOn") {
		names = append(names, text(dependency, "", "name"))
	}

	return names
}

// add builds a Flux Kustomization and adds it to the cluster.
func (t *tree) add(c *cluster, flux object, folder string) {
	comp := &component{name: flux.GetName(), folder: folder, dependsOn: dependencies(flux)}
	c.components = append(c.components, comp)

	resources, err := t.build(flux, folder)
	if err != nil {
		c.report("%s: %s", folder, strings.ReplaceAll(err.Error(), t.root+"/", ""))

		return
	}

	variables := c.variables(flux)

	for _, r := range resources {
		substituted, missing, err := substitute(flux, r, variables)
		for _, name := range missing {
			c.report("%s: %s %s reads ${%s}, which is neither a fact of the program nor a setting of %s: see "+
				"docs/gitops.md#facts-and-settings, or give it a default, ${%s:=…}",
				folder, r.GetKind(), r.GetName(), name, c.folder, name)
		}

		o := &unstructured.Unstructured{}

		if err == nil {
			var text []byte
			if text, err = substituted.MarshalJSON(); err == nil {
				err = o.UnmarshalJSON(text)
			}
		}

		if err != nil {
			c.report("%s: %s %s: %v", folder, r.GetKind(), r.GetName(), err)

			continue
		}

		comp.objects = append(comp.objects, o)
	}
}

func (t *tree) build(flux object, folder string) ([]*resource.Resource, error) {
	full := filepath.Join(t.root, folder)
	if stat, err := os.Stat(full); err != nil || !stat.IsDir() {
		return nil, fmt.Errorf("the folder of Kustomization %s is not in the repository: correct its spec.path", flux.GetName())
	}

	generator := kustomize.NewGenerator(t.root, *flux)

	action, err := generator.WriteFile(full, kustomize.WithSaveOriginalKustomization())
	if err != nil {
		return nil, fmt.Errorf("unable to read it: %w", err)
	}

	built, err := t.kustomize(full)
	if cleanErr := kustomize.CleanDirectory(full, action); err == nil {
		err = cleanErr
	}

	if err != nil {
		return nil, fmt.Errorf("kustomize: %w", err)
	}

	return built.Resources(), nil
}

// kustomize builds a folder like Flux' [kustomize.SecureBuild], which would also reset the schema of Kubernetes for
// each folder: most of a check's time. Without the reset, a folder's openapi.path may affect the next one.
func (t *tree) kustomize(folder string) (built resmap.ResMap, err error) {
	files, err := filesys.MakeFsOnDiskSecure(t.root)
	if err != nil {
		return nil, err
	}

	defer func() { // kustomize panics on some invalid objects
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()

	return krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone, PluginConfig: types.DisabledPluginConfig(),
	}).Run(files, folder)
}

// variables returns the variables of a Flux Kustomization: facts, and those of the cluster's ConfigMaps and Secrets.
func (c *cluster) variables(flux object) map[string]string {
	found, _, _ := unstructured.NestedStringMap(flux.Object, "spec", "postBuild", "substitute")
	found = maps.Clone(found)

	if found == nil {
		found = map[string]string{}
	}

	for _, source := range items(flux, "spec", "postBuild", "substituteFrom") {
		kind, name := text(source, "", "kind"), text(source, "", "name")

		if kind == "ConfigMap" && name == factsName {
			maps.Copy(found, exampleFacts)

			continue
		}

		o := c.find("", kind, fluxNamespace, name)
		if o == nil {
			if source.Object["optional"] != true {
				c.report("%s: Kustomization %s substitutes from %s %s, which the cluster does not have", c.folder, flux.GetName(),
					kind, name)
			}

			continue
		}

		for _, key := range []string{"data", "stringData"} {
			values, _, _ := unstructured.NestedStringMap(o.Object, key)
			maps.Copy(found, values)
		}
	}

	return found
}

var unsetVariable = regexp.MustCompile(`variable not set \(strict mode\): "([^"]+)"`)

// substitute replaces the variables of a resource as Flux does, and returns the missing ones.
func substitute(
	flux object, r *resource.Resource, variables map[string]string,
) (substituted *resource.Resource, missing []string, err error) {
	if fields(flux, "spec", "postBuild") == nil {
		return r, nil, nil
	}

	for {
		inline := map[string]any{"x": ""} // without any, Flux substitutes nothing
		for name, value := range variables {
			inline[name] = value
		}

		values := unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"postBuild": map[string]any{"substitute": inline}},
		}}

		substituted, err = kustomize.SubstituteVariables(context.Background(), nil, values, r.DeepCopy(),
			kustomize.SubstituteWithDryRun(true), kustomize.SubstituteWithStrict(true))
		if err == nil {
			if substituted == nil { // disabled by an annotation
				substituted = r
			}

			return substituted, missing, nil
		}

		match := unsetVariable.FindStringSubmatch(err.Error())
		if match == nil || slices.Contains(missing, match[1]) {
			return nil, missing, fmt.Errorf("unable to substitute its variables: %w", err)
		}

		missing = append(missing, match[1])
		variables[match[1]] = "unknown"
	}
}
