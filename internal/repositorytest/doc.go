// Package repositorytest has rules for the repository's files as tests: imports of packages, versions of modules, file
// names, links and anchors in documents.
package repositorytest
