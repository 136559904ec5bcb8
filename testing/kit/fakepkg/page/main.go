// Command page is the component of the demo: a web server with one page, which shows the
// version that runs. Its argument is its configuration file, with the address to listen on
// and the page's text; a file named broken beside the program has it end at once.
package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	address, body, _ := strings.Cut(string(text), "\n")
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "broken")); err == nil {
		return fmt.Errorf("cannot serve %q", strings.TrimSpace(body))
	}
	fmt.Println("serving", strings.TrimSpace(body), "on", address)
	server := http.Server{
		Addr: address, ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }),
	}
	return server.ListenAndServe()
}
