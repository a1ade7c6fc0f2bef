// Package workflowstest has rules for the workflows in .github/workflows as tests: which code has which secrets and
// tokens.
package workflowstest
