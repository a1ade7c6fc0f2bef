package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// report is the result of checkTree.
type report struct {
	clusters   []string // folders
	components []string // folders, including those that no cluster lists
	unchecked  []string // charts, with the reasons
	problems   []string
}

// checkTree checks every cluster in a repository's folder (gitops), and every component that no cluster lists as part
// of a trial cluster. withCharts also downloads and checks the charts of releases.
func checkTree(ctx context.Context, repository, folder string, withCharts bool) (report, error) {
	known, err := loadSchemas(ctx, schemaModules)
	if err != nil {
		return report{}, err
	}

	workDir, err := os.MkdirTemp("", "gitopscheck-")
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(workDir) //nolint:errcheck // a temporary folder

	t, err := copyTree(repository, workDir)
	if err != nil {
		return report{}, err
	}

	found := report{}
	if found.problems, err = checkSecrets(repository, folder); err != nil {
		return report{}, err
	}

	found.problems = append(found.problems, t.checkLinks(folder)...)

	if found.clusters, err = foldersWith(repository, path.Join(folder, "clusters/*"), "kustomization.yaml"); err != nil {
		return report{}, err
	}

	if len(found.clusters) == 0 {
		return report{}, fmt.Errorf("%s/clusters has no cluster: a folder with kustomization.yaml", folder)
	}

	var all []*cluster

	used := map[string]bool{}

	for _, name := range found.clusters {
		c := t.resolve(name)
		all = append(all, c)

		for _, comp := range c.components {
			used[path.Dir(comp.folder)] = true
		}
	}

	trials, err := newTrialClusters(t, folder, found.clusters[len(found.clusters)-1])
	if err != nil {
		return report{}, err
	}

	for _, component := range trials.components {
		found.components = append(found.components, component)
		if used[component] {
			continue
		}

		c, err := trials.clusterWith(component)
		if err != nil {
			found.problems = append(found.problems, err.Error())

			continue
		}

		all = append(all, c)
	}

	var charts map[chartSource]fetchedChart
	if withCharts {
		charts = fetchCharts(ctx, all)
	}

	for _, c := range all {
		c.check(known)
		t.checkRequirements(c)

		if withCharts {
			found.unchecked = append(found.unchecked, c.checkCharts(charts)...)
		}

		found.problems = append(found.problems, c.problems...)
	}

	slices.Sort(found.problems)
	slices.Sort(found.unchecked)
	found.problems, found.unchecked = slices.Compact(found.problems), slices.Compact(found.unchecked)

	return found, nil
}

// checkRequirements checks the requirements of a cluster's components that concern the tree.
func (t *tree) checkRequirements(c *cluster) {
	for _, comp := range c.components {
		r, err := readRequirements(t.root, comp.folder)
		if err != nil {
			c.report("%s", strings.ReplaceAll(err.Error(), t.root+"/", ""))

			continue
		}

		c.checkPrivileged(r, path.Dir(comp.folder))
	}
}

// foldersWith lists the folders that match a pattern and have a file of this name.
func foldersWith(repository, pattern, file string) ([]string, error) {
	matches, err := fs.Glob(os.DirFS(repository), path.Join(pattern, file))
	if err != nil {
		return nil, err
	}

	for i := range matches {
		matches[i] = path.Dir(matches[i])
	}

	return matches, nil
}

// trialClusters builds copies of a model cluster, each with a component that no cluster lists.
type trialClusters struct {
	tree          *tree
	folder, model string   // of the tree, and of the model cluster
	resources     []string // folders of the model's components
	components    []string
	names         map[string]string   // of Flux Kustomizations, by component
	dependsOn     map[string][]string // by component
}

func newTrialClusters(t *tree, folder, model string) (*trialClusters, error) {
	trials := &trialClusters{
		tree: t, folder: folder, model: model, names: map[string]string{}, dependsOn: map[string][]string{},
	}

	err := fs.WalkDir(os.DirFS(t.root), folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "flux.yaml" {
			return err
		}

		var flux struct {
			Metadata struct{ Name string }
			Spec     struct {
				DependsOn []struct{ Name string } `yaml:"dependsOn"`
			}
		}

		content, err := os.ReadFile(filepath.Join(t.root, file))
		if err == nil {
			err = yaml.Unmarshal(content, &flux)
		}

		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		component := path.Dir(file)
		trials.components = append(trials.components, component)
		trials.names[component] = flux.Metadata.Name

		for _, one := range flux.Spec.DependsOn {
			trials.dependsOn[component] = append(trials.dependsOn[component], one.Name)
		}

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("unable to find components: %w", err)
	}

	for _, comp := range t.resolve(model).components {
		if component := path.Dir(comp.folder); comp.name != "" && slices.Contains(trials.components, component) {
			trials.resources = append(trials.resources, component)
		}
	}

	return trials, nil
}

// clusterWith resolves the model with another component, its dependencies and its secret. The component replaces one of
// the same name.
func (t *trialClusters) clusterWith(component string) (*cluster, error) {
	resources := slices.DeleteFunc(slices.Clone(t.resources), func(r string) bool {
		return t.names[r] == t.names[component]
	})
	resources = append(resources, component)

	for i := 0; i < len(resources); i++ {
		for _, name := range t.dependsOn[resources[i]] {
			if slices.ContainsFunc(resources, func(r string) bool { return t.names[r] == name }) {
				continue
			}

			if found := slices.IndexFunc(t.components, func(r string) bool { return t.names[r] == name }); found >= 0 {
				resources = append(resources, t.components[found])
			}
		}
	}

	files, settings := []string{"settings.yaml"}, map[string]string{}

	if example := path.Join(component, "secret"+exampleSuffix); exists(t.tree.root, example) {
		resources = append(resources, example)
	}

	for _, resource := range resources {
		relative, err := filepath.Rel(path.Join(t.folder, "clusters/trial"), resource)
		if err != nil {
			return nil, err
		}

		files = append(files, relative)

		if path.Ext(resource) != "" {
			continue // its secret
		}

		r, err := readRequirements(t.tree.root, path.Join(resource, "manifests"))
		if err != nil {
			return nil, err
		}

		maps.Copy(settings, r.Settings)
	}

	configMap, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": settings,
		"metadata": map[string]string{"name": "cluster-settings", "namespace": fluxNamespace},
	})
	if err != nil {
		return nil, err
	}

	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": files, "components": []string{"../../infrastructure/defaults"},
	})
	if err != nil {
		return nil, err
	}

	folder := filepath.Join(t.tree.root, t.folder, "clusters/trial")
	if err := errors.Join(
		os.MkdirAll(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o600),
		os.WriteFile(filepath.Join(folder, "settings.yaml"), configMap, 0o600),
	); err != nil {
		return nil, fmt.Errorf("unable to write a trial cluster with %s: %w", component, err)
	}

	c := t.tree.resolve(path.Join(t.folder, "clusters/trial"))
	for i := range c.problems {
		c.problems[i] = component + ", as part of a cluster: " + c.problems[i]
	}

	return c, nil
}

func exists(root, file string) bool {
	_, err := os.Stat(filepath.Join(root, file))

	return err == nil
}
