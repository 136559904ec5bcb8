package main

func notifyReady() error { return nil }
