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

// object is an object of Kubernetes as the API server would get it.
type object = *unstructured.Unstructured

// tree is a copy of a repository that Flux reconciles clusters from: Flux's library writes into it.
type tree struct {
	root string
	// links are the repository's symbolic links to manifests and folders, which Flux leaves out of what it reconciles.
	links []string
}

// openTree copies the files of a repository below a folder, where the caller removes them.
func openTree(repository, folder string) (*tree, error) {
	t := &tree{root: folder}
	if err := os.CopyFS(folder, repositoryFiles{os.DirFS(repository), t}); err != nil {
		return nil, fmt.Errorf("unable to copy %s: %w", repository, err)
	}

	return t, nil
}

// judgeLinks names the symbolic links in folders, and those of the folders that are one.
func (t *tree) judgeLinks(folders ...string) (problems []string) {
	for _, link := range t.links {
		if slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(link+"/", f+"/") }) {
			problems = append(problems, link+" is a symbolic link, which Flux leaves out: put what it leads to in its place, or list "+
				"that in a kustomization.yaml")
		}
	}

	return problems
}

// repositoryFiles leaves out what is no manifest: hidden folders, whatever is not YAML, and symbolic links, which it
// notes in the tree.
type repositoryFiles struct {
	fs.FS
	tree *tree
}

func (r repositoryFiles) ReadDir(name string) ([]fs.DirEntry, error) {
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

// cluster is what Flux makes of a cluster's folder.
type cluster struct {
	folder string
	// components are the folder itself, which has no name, and then every Flux Kustomization.
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

// objects are those of all components, which change nothing while they are looked at.
func (c *cluster) objects() iter.Seq2[*component, object] {
	return func(yield func(*component, object) bool) {
		for _, one := range c.components {
			for _, o := range one.objects {
				if !yield(one, o) {
					return
				}
			}
		}
	}
}

// has says whether there is an object of which something is true.
func (c *cluster) has(is func(object) bool) bool {
	for _, o := range c.objects() {
		if is(o) {
			return true
		}
	}

	return false
}

// find returns the object of a kind, by the kind's group; nil = there is none.
func (c *cluster) find(group, kind, namespace, name string) (found object) {
	c.has(func(o object) bool {
		is := isKind(o, group, kind) && o.GetNamespace() == namespace && o.GetName() == name
		if is {
			found = o
		}

		return is
	})

	return found
}

func isKind(o object, group, kind string) bool {
	return o.GroupVersionKind().Group == group && o.GetKind() == kind
}

// at is where an object is, in messages.
func (one *component) at(o object) string {
	return fmt.Sprintf("%s: %s %s", one.folder, o.GetKind(), o.GetName())
}

// fields are those of a part of an object; nil = it is not stated.
func fields(o object, path ...string) map[string]any {
	found, _, _ := unstructured.NestedMap(o.Object, path...)

	return found
}

// items are the parts of a list in an object.
func items(o object, path ...string) []object {
	list, _, _ := unstructured.NestedSlice(o.Object, path...)

	return objectsOf(list)
}

func objectsOf(list []any) []object {
	found := make([]object, 0, len(list))

	for _, one := range list {
		part, _ := one.(map[string]any)
		found = append(found, &unstructured.Unstructured{Object: part})
	}

	return found
}

// resolve builds a cluster's folder and, by the Flux Kustomizations in it, everything that they lead to in this
// repository, as Flux' kustomize-controller does.
func (t *tree) resolve(folder string) *cluster {
	c := &cluster{folder: folder}
	start := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	start.SetNamespace(fluxNamespace)
	t.add(c, start, folder)

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
	for _, one := range items(o, "spec", "dependsOn") {
		names = append(names, text(one, "", "name"))
	}

	return names
}

// add builds what a Flux Kustomization applies.
func (t *tree) add(c *cluster, flux object, folder string) {
	one := &component{name: flux.GetName(), folder: folder, dependsOn: dependencies(flux)}
	c.components = append(c.components, one)

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

		one.objects = append(one.objects, o)
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
	if cleaned := kustomize.CleanDirectory(full, action); err == nil {
		err = cleaned
	}

	if err != nil {
		return nil, fmt.Errorf("kustomize: %w", err)
	}

	return built.Resources(), nil
}

// kustomize builds a folder as [kustomize.SecureBuild] of Flux does, but for the schema of Kubernetes, which that reads
// anew for each folder: most of a check's time. One folder's openapi.path may reach the next one's build here.
func (t *tree) kustomize(folder string) (built resmap.ResMap, err error) {
	files, err := filesys.MakeFsOnDiskSecure(t.root)
	if err != nil {
		return nil, err
	}

	defer func() { // kustomize panics at some invalid objects
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()

	return krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone, PluginConfig: types.DisabledPluginConfig(),
	}).Run(files, folder)
}

// variables are what a Flux Kustomization substitutes from: facts, and ConfigMaps and Secrets of the cluster.
func (c *cluster) variables(flux object) map[string]string {
	found, _, _ := unstructured.NestedStringMap(flux.Object, "spec", "postBuild", "substitute")
	found = maps.Clone(found)

	if found == nil {
		found = map[string]string{}
	}

	for _, source := range items(flux, "spec", "postBuild", "substituteFrom") {
		kind, name := text(source, "", "kind"), text(source, "", "name")

		if kind == "ConfigMap" && name == factsName {
			maps.Copy(found, facts)

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

var unset = regexp.MustCompile(`variable not set \(strict mode\): "([^"]+)"`)

// substitute replaces the variables of a resource as Flux does, and says which there are not.
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
			if substituted == nil { // told not to
				substituted = r
			}

			return substituted, missing, nil
		}

		match := unset.FindStringSubmatch(err.Error())
		if match == nil || slices.Contains(missing, match[1]) {
			return nil, missing, fmt.Errorf("unable to substitute its variables: %w", err)
		}

		missing = append(missing, match[1])
		variables[match[1]] = "unknown"
	}
}
