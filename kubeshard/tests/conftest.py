"""Lets pytest find the modules beside this file, which tests of several folders import."""
