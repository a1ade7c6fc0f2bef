package stacks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// fileName is the name of a stack's file.
func fileName(stack string) string { return "Pulumi." + stack + ".yaml" }

// Located adds the lines of the stack file to the problems of its configuration; for a missing key, the line of its
// parent. Other errors stay as they are.
func Located(err error, stack string, content []byte) error {
	var file struct {
		Config yaml.Node `yaml:"config"`
	}

	problems := slices.Clone(problemsOf(err))
	if len(problems) == 0 || yaml.Unmarshal(content, &file) != nil {
		return err
	}

	for i, p := range problems {
		if line := findLine(&file.Config, p.Path); line > 0 {
			problems[i].Place = fmt.Sprintf("%s:%d", fileName(stack), line)
		}
	}

	return problems
}

var pathStep = regexp.MustCompile(`[^.\[\]]+`)

// findLine returns the line of a path, or of the longest prefix that exists; 0 = none.
func findLine(node *yaml.Node, path string) (line int) {
	for depth, step := range pathStep.FindAllString(path, -1) {
		found, value := child(node, step)
		if found == 0 && depth == 0 {
			found, value = child(node, Project+":"+step)
		}

		if found == 0 {
			return line
		}

		line, node = found, value
	}

	return line
}

// child returns a node's value at a key or index, and the line where it begins; 0 = there is none.
func child(node *yaml.Node, step string) (line int, value *yaml.Node) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}

	if node.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(step); err == nil && i < len(node.Content) {
			return node.Content[i].Line, node.Content[i]
		}

		return 0, nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == step {
			return node.Content[i].Line, node.Content[i+1]
		}
	}

	return 0, nil
}
