"""The workbench, ``hypercaps serve``: label a scene, train and look at the map in a browser.

``serving`` starts it, ``app`` lists its routes, ``bench`` is what they act on; docs/workbench-api.md describes the
interface to the page.
"""
