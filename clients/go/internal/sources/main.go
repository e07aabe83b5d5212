// Prints a hash of the Go code in directories: of all files but tests and generated ones, without comments and layout.
package main

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"hash"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	sum := sha256.New()
	for _, folder := range os.Args[1:] {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%s: has no Go files", folder)
		}
		for _, file := range files {
			if err == nil {
				err = add(sum, file)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	fmt.Printf("%x\n", sum.Sum(nil))
}

// add adds the words of a file, and its comments that the compiler reads.
func add(sum hash.Hash, file string) error {
	text, err := os.ReadFile(file)
	if err != nil || strings.HasSuffix(file, "_test.go") {
		return err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil || ast.IsGenerated(parsed) {
		return err
	}
	fmt.Fprintf(sum, "file %s\n", filepath.ToSlash(file))
	files, words := token.NewFileSet(), scanner.Scanner{}
	words.Init(files.AddFile(file, -1, len(text)), text, nil, scanner.ScanComments)
	for {
		_, kind, word := words.Scan()
		switch {
		case kind == token.EOF:
			return nil
		case kind == token.COMMENT && !strings.HasPrefix(word, "//go:"):
		case kind == token.SEMICOLON:
			// Those at ends of lines are the scanner's.
			fmt.Fprintln(sum, ";")
		default:
			fmt.Fprintf(sum, "%s %q\n", kind, word)
		}
	}
}
