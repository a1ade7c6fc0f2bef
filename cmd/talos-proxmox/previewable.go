package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func newPreviewable(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "previewable STACK...",
		Short: "Fail if a pull request must not be previewed with a stack's secrets",
		Long: `Fails for a stack with protect: true, and for one whose file cannot be read. A pull request runs its own code
with the secrets of the stacks that it previews. The workflow preview runs this command with the base branch's code and
stack files, so that a pull request cannot change the answer.`,
		Example:           "  talos-proxmox previewable dev",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(_ *cobra.Command, names []string) error {
			var refusals []error

			for _, stack := range names {
				if a.protected(stack) {
					refusals = append(refusals, fmt.Errorf("%s has protect: true, or cannot be read, so that no pull request may be previewed with "+
						"its secrets: take %s out of PREVIEW_STACKS (docs/pipelines.md#who-sees-what)", a.File(stack), stack))
				}
			}

			return errors.Join(refusals...)
		},
	}
}
