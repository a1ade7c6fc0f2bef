// Package repositorytest holds the rules that the repository's files keep: which package imports which, the versions
// that both modules share, names of files, links and anchors of the documents.
package repositorytest
