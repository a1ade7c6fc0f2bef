// Package workflowstest holds the rules that the workflows of .github/workflows keep: who sees which secret, whose code
// runs with which token.
package workflowstest
