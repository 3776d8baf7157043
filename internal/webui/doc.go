// Package webui is the web UI: plain HTML pages about executions, made on the server from any
// belay.Backend. The pages read and never write.
//
// Names, errors, outputs and logs come from other people and may contain anything. Three measures
// keep them harmless. html/template escapes every value for its place in the page; one pass over
// the finished page replaces control characters and marks of text direction by visible characters;
// and a Content-Security-Policy lets the browser load only the style sheet and the icon, and run no
// script. The size of every page is bounded.
//
// The pages have no script. The page of an execution that has not ended reloads itself by a meta
// element, which a link turns off. The countdown to the end of the lease is an animation in an SVG
// picture.
package webui
