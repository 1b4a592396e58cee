"""Graph Vision Network: link prediction on the user's own graph by message passing and pictures of the graph.

Wei, Wang, Zhuang, Chen, Chen, Zhang, Kwok, Zhang: Open Your Eyes: Vision Enhances Message Passing Neural Networks in
Link Prediction. ICML 2025.
"""
